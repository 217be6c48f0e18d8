"""LayoutSampler: an Optuna sampler over a finite table of legal layouts whose cost has been predicted.

Optuna sees one categorical parameter per layout field. The sampler always selects a whole row of the table, so that
every proposal is legal. docs/explanation/sampler.md describes the selection, and the use of the sampler alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler
from optuna.study import StudyDirection

from autotuner.core.codec import from_plain
from autotuner.core.columns import Integers, LayoutColumns
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.objective import Objective
from autotuner.core.trial import PastTrial
from autotuner.costmodel.predict import PredictionColumns
from autotuner.costmodel.resource_cost import predicted_resource_costs, value_per_step
from autotuner.costmodel.uncertainty import time_error
from autotuner.search.sampler.observations import Evidence, EvidenceReader, params_of
from autotuner.search.sampler.priors import memory_prior, time_prior
from autotuner.search.sampler.propose import Beliefs, FrontFactors, MemoryBelief, Proposal, memory_belief, propose
from autotuner.search.sampler.transfer import OtherJobs, ScaleDown

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial, Trial

_ASKING = Lock()
"""Lock under which one thread of the process at a time selects and reserves a row. It is global, because samplers are
pickled and locks cannot be."""


class LayoutSampler(BaseSampler):
    """An Optuna sampler that proposes untried layouts of a table, the most promising layout first.

    The most promising layout is the one that is expected to improve the best value most.

    The study's direction must be "maximize". The value of a trial is its MFU, or the value of another objective if
    ``objective`` is given. A trial may report more results as user attributes: ``STEP_TIME_S`` (then its value is
    ignored), ``OUT_OF_MEMORY`` and ``PEAK_BYTES``. If the objective has a Pareto front, the study has one direction per
    metric, each trial must report ``STEP_TIME_S``, and layouts are proposed by the expected increase of the
    hypervolume.

    Args:
        layouts: Every legal layout: the rows of the table.
        predictions: Predictions of these layouts for the job.
        job: The job.
        objective: Meaning of a trial's value; None: MFU. Costs other than time (energy, price) are modelled for all
            rows, measured or not, so that errors of the model favour no row. For an objective under faults, predictions
            and step times are those under the fault trace.
        limit_bytes: Bytes that a rank may allocate; None: the accelerator's memory.
        seed: Seed for the choice between rows that are equally good. The same seed and the same results give the same
            proposals.
        min_gain: ``stop_when_done`` stops the study if the next trial is expected to raise the best value by less than
            this fraction; 0: never.
        cost_exponent: Weight of a trial's step time as a cost, from 0 (no weight) to 1 (the gain is divided by the step
            time).
        scale_down: Function that returns the proxy trial of a layout, which is a smaller job and layout that runs in
            its place. None: trials run the layouts themselves. With proxy trials, ``STEP_TIME_S``, ``PEAK_BYTES`` and
            ``OUT_OF_MEMORY`` are results of the smaller job, and a trial without ``STEP_TIME_S`` tells nothing about
            time. The best value is then the highest expected value among layouts whose proxy trials succeeded. A trial
            with the attribute ``FULL_SIZE`` ran the layout itself.
        same_trial: A number for each row. Rows with the same number share one trial: all of them count as tried after
            it. None: each row has its own trial.
        past: Trials on the same hardware and software that were stored before the search, from any job. Past trials of
            the same job count as run on another day: the sampler may propose their layouts again, and their values do
            not count as the best value.

    Raises:
        InvalidInput: The numbers of predictions and layouts differ; or ``min_gain`` or ``cost_exponent`` is negative.
    """

    def __init__(
        self,
        layouts: LayoutColumns,
        predictions: PredictionColumns,
        *,
        job: Job,
        objective: Objective | None = None,
        limit_bytes: float | None = None,
        seed: int = 0,
        min_gain: float = 0.01,
        cost_exponent: float = 0.25,
        scale_down: ScaleDown | None = None,
        same_trial: Integers | None = None,
        past: Sequence[PastTrial] = (),
    ) -> None:
        if len(layouts) != len(predictions.mfu):
            raise InvalidInput(
                "predictions",
                len(predictions.mfu),
                "is the number of predictions, but there must be one prediction for each layout",
                len(layouts),
            )
        for name, value in (("min_gain", min_gain), ("cost_exponent", cost_exponent)):
            if not value >= 0:
                raise InvalidInput(name, value, "must not be negative", 0)
        self._layouts = layouts
        self._seed = seed
        self._min_gain = min_gain
        self._cost_exponent = cost_exponent
        objective = objective or Objective()
        resource_costs = predicted_resource_costs(layouts, job, predictions) if objective.reads_resource_cost else None
        values = value_per_step(objective, job, resource_costs, len(layouts))
        others = OtherJobs(job, layouts, scale_down, past)
        self._reader = EvidenceReader(
            layouts,
            value_per_step=values,
            allowance_bytes=predictions.memory.allowance_bytes,
            small_allowance_bytes=None if scale_down is None else others.allowance_bytes,
            same_trial=same_trial,
        )
        self._beliefs = Beliefs(
            times=time_prior(layouts, predictions, time_error(job), under_faults=objective.under_faults),
            peaks=memory_prior(layouts, predictions.memory),
            limit_bytes=float(job.cluster.accelerator.memory_bytes if limit_bytes is None else limit_bytes),
            value_per_step=values,
            front=FrontFactors.of(objective.front, job, resource_costs, len(layouts)) if objective.front else None,
            others=others,
        )
        self._ruled_out: frozenset[int] = frozenset()
        self._last: tuple[Evidence, Proposal | None] | None = None
        # by study and trial, because Optuna stores one field after the other
        self._promised: dict[str, dict[int, dict[str, Any]]] = {}

    # ------------------------------------------------------------------ what Optuna calls
    @cached_property
    def distributions(self) -> dict[str, BaseDistribution]:
        """One categorical distribution for each layout option, with the values that occur in the table."""
        choices: dict[str, BaseDistribution] = {}
        for name in OPTIONS:
            _, first = np.unique(getattr(self._layouts, name), return_index=True)
            choices[name] = CategoricalDistribution([params_of(self._layouts.row(int(row)))[name] for row in first])
        return choices

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return the distributions of all layout options, since they are sampled together (called by Optuna)."""
        del study, trial
        return self.distributions

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return the parameters of the next layout to try (called by Optuna).

        The result is empty if no untried layout is likely enough to fit in memory.

        Raises:
            InvalidInput: The study minimises.
        """
        del search_space
        if any(direction != StudyDirection.MAXIMIZE for direction in study.directions):
            raise InvalidInput(
                "direction",
                "minimize",
                "must be maximize, because the sampler proposes layouts with higher values",
                "maximize",
            )
        with _ASKING:
            promised = self._promised.setdefault(study.study_name, {})
            others = (t for t in study.get_trials(deepcopy=False) if t.number != trial.number)
            proposal = self.propose(others, promised)
            if proposal is None:
                return {}
            promised[trial.number] = params_of(self._layouts.row(proposal.row))
            return dict(promised[trial.number])

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Refuse to sample a single option, because most combinations of single options are illegal (called by Optuna).

        Raises:
            ValueError: Always. Optuna calls this if no layout is left, or for a parameter that is no layout option.
        """
        del study, trial, param_distribution
        raise ValueError(f"the sampler has no layout left to propose, or {param_name!r} is not a field of a layout")

    # ------------------------------------------------------------------ what objectives and callbacks call
    def suggest(self, trial: Trial) -> Layout:
        """Return the layout that an Optuna trial should run; call it in the objective function of the study."""
        spaces = cast("dict[str, CategoricalDistribution]", self.distributions)
        return from_plain(Layout, {name: trial.suggest_categorical(name, spaces[name].choices) for name in spaces})

    def remaining_gain(self, study: Study) -> float:
        """Return the relative increase of the best value that is expected from the next trial, such as 0.02 for 2 %.

        The result is infinite before the first measurement, and 0.0 if no untried layout is likely to fit in memory.
        """
        proposal = self.propose(study.get_trials(deepcopy=False))
        return 0.0 if proposal is None else proposal.expected_gain

    def stop_when_done(self, study: Study, trial: FrozenTrial) -> None:
        """Stop the study if the next trial is expected to gain less than ``min_gain``, or if no layout is left.

        This is a callback for ``study.optimize``.
        """
        del trial
        proposal = self.propose(study.get_trials(deepcopy=False))
        if proposal is None or proposal.expected_gain < self._min_gain:
            study.stop()

    # ------------------------------------------------------------------ the choice
    def rule_out(self, rows: Integers) -> None:
        """Exclude rows of the table from later proposals. Each call replaces the rows that earlier calls excluded.

        The results of trials of excluded rows are still used.

        Args:
            rows: Indices of the rows to exclude.
        """
        self._ruled_out = frozenset(map(int, rows))
        self._last = None

    def propose(
        self, trials: Iterable[FrozenTrial], promised: Mapping[int, Mapping[str, Any]] | None = None
    ) -> Proposal | None:
        """Return the row (layout) to try next; None if every row was tried or is not likely to fit in memory.

        Args:
            trials: Trials of one study.
            promised: Parameters by trial number, for trials whose parameters are not stored yet.
        """
        evidence, last = self._reader.read(trials, promised), self._last
        if last is not None and last[0] == evidence:
            return last[1]
        proposal = self._proposal(evidence)
        self._last = evidence, proposal
        return proposal

    def propose_among(self, rows: Integers, trials: Iterable[FrozenTrial]) -> Proposal | None:
        """Return which of these rows (layouts) to try next; None if each was tried or is not likely to fit in memory.

        Args:
            rows: Indices of rows of the table.
            trials: Trials of one study.
        """
        return self._proposal(self._reader.read(trials), rows)

    def memory(self, trials: Iterable[FrozenTrial]) -> MemoryBelief:
        """Return the ratio of expected to predicted peak memory of the untried layouts, as learnt from these trials.

        Args:
            trials: Trials of one study.
        """
        return memory_belief(self._beliefs, self._reader.read(trials))

    def _proposal(self, evidence: Evidence, among: Integers | None = None) -> Proposal | None:
        tie_breaker = np.random.default_rng([self._seed, len(evidence.tried)])
        exponent = self._cost_exponent
        evidence = replace(evidence, tried=evidence.tried | self._ruled_out)
        return propose(self._beliefs, evidence, cost_exponent=exponent, tie_breaker=tie_breaker, among=among)
