"""LayoutSampler: an Optuna sampler over a finite table of legal layouts whose cost has been predicted.

Optuna sees one categorical parameter per layout field; the sampler always picks a whole row, so a proposal is legal by
construction. How it picks, and how to use it alone, is told in docs/explanation/sampler.md.
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
from autotuner.costmodel.resource_cost import predicted_footprints, worth_per_step
from autotuner.costmodel.uncertainty import time_error
from autotuner.search.sampler.observations import Evidence, EvidenceReader, params_of
from autotuner.search.sampler.priors import memory_prior, time_prior
from autotuner.search.sampler.propose import Beliefs, FrontWorths, MemoryBelief, Proposal, memory_belief, propose
from autotuner.search.sampler.transfer import OtherJobs, ScaleDown

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial, Trial

_ASKING = Lock()
"""Held while a row is chosen and promised, by one thread of the process at a time. No sampler owns it, since samplers
are pickled."""


class LayoutSampler(BaseSampler):
    """Proposes untried rows of a table of layouts, the one first that most improves the expected best value.

    The study's direction is "maximize" and a trial's value is what the objective says of it: its MFU, unless another
    is given. A trial may carry more as user attributes: ``STEP_TIME_S`` (then the value may be anything),
    ``OUT_OF_MEMORY``, ``PEAK_BYTES``. Of an objective with a front the study has a direction per metric, a trial must
    carry its ``STEP_TIME_S``, and the row comes first that most improves the expected hypervolume.

    Args:
        layouts: Every legal layout.
        predictions: Of these layouts, for the job.
        objective: What a trial's value is; rows are compared by what they are modelled to take beside time, measured or
            not, so that what the model of that is off by favours none. Under faults, its predictions and step times are
            those of the fault trace.
        limit_bytes: What a rank may allocate; None: the accelerator's memory.
        seed: Decides between rows that are equally good; the same seed and answers give the same proposals.
        min_gain: ``stop_when_done`` stops when the best value is expected to rise by less than this fraction; 0: never.
        cost_exponent: How much a trial's time counts against it, from 0 (not at all) to 1 (gain per second).
        scale_down: What a trial runs in the place of a layout, which it must be able to say of every row; None: trials
            run the layouts themselves. Then ``STEP_TIME_S``, ``PEAK_BYTES`` and ``OUT_OF_MEMORY`` are those of the
            small job, a trial without ``STEP_TIME_S`` tells no time whatever its value, and the best value is the
            expected one of a row whose proxy trial ended well. A trial that carries ``FULL_SIZE`` ran its layout.
        same_trial: A number for each row, equal where one trial stands for several: all of these count as tried with
            the first. None: each row has a trial of its own.
        past: Trials on such hardware and software that were stored before the search, of whatever job. Those of the
            very job count as run on another day: their layouts are still tried, and the best value is none of theirs.

    Raises:
        InvalidInput: Not one prediction per layout; a negative ``min_gain`` or ``cost_exponent``.
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
            raise InvalidInput("predictions", len(predictions.mfu), "must be as many as layouts", len(layouts))
        for name, value in (("min_gain", min_gain), ("cost_exponent", cost_exponent)):
            if not value >= 0:
                raise InvalidInput(name, value, "must not be negative", 0)
        self._layouts = layouts
        self._seed = seed
        self._min_gain = min_gain
        self._cost_exponent = cost_exponent
        objective = objective or Objective()
        footprints = predicted_footprints(layouts, job, predictions) if objective.reads_footprint else None
        worth = worth_per_step(objective, job, footprints, len(layouts))
        others = OtherJobs(job, layouts, scale_down, past)
        self._reader = EvidenceReader(
            layouts,
            worth_per_step=worth,
            allowance_bytes=predictions.memory.allowance_bytes,
            small_allowance_bytes=None if scale_down is None else others.allowance_bytes,
            same_trial=same_trial,
        )
        self._beliefs = Beliefs(
            times=time_prior(layouts, predictions, time_error(job), under_faults=objective.under_faults),
            peaks=memory_prior(layouts, predictions.memory),
            limit_bytes=float(job.cluster.accelerator.memory_bytes if limit_bytes is None else limit_bytes),
            worth_per_step=worth,
            front=FrontWorths.of(objective.front, job, footprints, len(layouts)) if objective.front else None,
            others=others,
        )
        self._ruled_out: frozenset[int] = frozenset()
        self._last: tuple[Evidence, Proposal | None] | None = None
        self._promised: dict[str, dict[int, dict[str, Any]]] = {}  # by study and trial; Optuna stores field by field

    # ------------------------------------------------------------------ what Optuna calls
    @cached_property
    def distributions(self) -> dict[str, BaseDistribution]:
        """One categorical distribution per layout field, over the values that occur in the table."""
        choices: dict[str, BaseDistribution] = {}
        for name in OPTIONS:
            _, first = np.unique(getattr(self._layouts, name), return_index=True)
            choices[name] = CategoricalDistribution([params_of(self._layouts.row(int(row)))[name] for row in first])
        return choices

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """All fields are sampled together."""
        del study, trial
        return self.distributions

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The next row to try; nothing when every row was tried or is not likely to fit.

        Raises:
            InvalidInput: The study minimises.
        """
        del search_space
        if any(direction != StudyDirection.MAXIMIZE for direction in study.directions):
            raise InvalidInput("direction", "minimize", "a trial's value is a rate: more is better", "maximize")
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
        """Fields cannot be drawn one by one: most combinations are illegal.

        Raises:
            ValueError: Always; reached when no row is left, or for a parameter that is no layout field.
        """
        del study, trial, param_distribution
        raise ValueError(f"no layout is left to propose, or {param_name!r} is no layout field")

    # ------------------------------------------------------------------ what objectives and callbacks call
    def suggest(self, trial: Trial) -> Layout:
        """The layout that a trial of ``study.optimize`` is to run."""
        spaces = cast("dict[str, CategoricalDistribution]", self.distributions)
        return from_plain(Layout, {name: trial.suggest_categorical(name, spaces[name].choices) for name in spaces})

    def remaining_gain(self, study: Study) -> float:
        """Return by which fraction the best value is expected to rise with the next trial.

        Infinite before anything was measured, 0.0 when no untried layout is likely to fit.
        """
        proposal = self.propose(study.get_trials(deepcopy=False))
        return 0.0 if proposal is None else proposal.expected_gain

    def stop_when_done(self, study: Study, trial: FrozenTrial) -> None:
        """Callback of ``study.optimize``: ends it when too little is left to gain, or nothing to propose."""
        del trial
        proposal = self.propose(study.get_trials(deepcopy=False))
        if proposal is None or proposal.expected_gain < self._min_gain:
            study.stop()

    # ------------------------------------------------------------------ the choice
    def rule_out(self, rows: Integers) -> None:
        """Propose none of these rows, and any other again; whatever their trials told stays known."""
        self._ruled_out = frozenset(map(int, rows))
        self._last = None

    def propose(
        self, trials: Iterable[FrozenTrial], promised: Mapping[int, Mapping[str, Any]] | None = None
    ) -> Proposal | None:
        """Return what to try after these trials; None when every row was tried or is not likely to fit.

        Args:
            trials: Of one study.
            promised: Layouts by trial number, for trials whose parameters are not stored yet.
        """
        evidence, last = self._reader.read(trials, promised), self._last
        if last is not None and last[0] == evidence:
            return last[1]
        proposal = self._proposal(evidence)
        self._last = evidence, proposal
        return proposal

    def propose_among(self, rows: Integers, trials: Iterable[FrozenTrial]) -> Proposal | None:
        """Return what to try of some rows after these trials; None when each was tried or is not likely to fit."""
        return self._proposal(self._reader.read(trials), rows)

    def memory(self, trials: Iterable[FrozenTrial]) -> MemoryBelief:
        """Return what is believed of the peaks of the untried layouts after these trials."""
        return memory_belief(self._beliefs, self._reader.read(trials))

    def _proposal(self, evidence: Evidence, among: Integers | None = None) -> Proposal | None:
        tie_breaker = np.random.default_rng([self._seed, len(evidence.tried)])
        exponent = self._cost_exponent
        evidence = replace(evidence, tried=evidence.tried | self._ruled_out)
        return propose(self._beliefs, evidence, cost_exponent=exponent, tie_breaker=tie_breaker, among=among)
