"""ProxyTrials: the proxy trial on a smaller cluster for each layout of a table, where one exists."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from autotuner.core.cluster import Cluster
from autotuner.core.columns import Booleans, Integers, LayoutColumns, broken_rows
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.rules.rule import Rule
from autotuner.core.stages import layers_per_stage
from autotuner.core.trial import ProxyTrial
from autotuner.core.units import format_bytes
from autotuner.costmodel.predict import predict_totals
from autotuner.costmodel.uncertainty import fit_probability
from autotuner.search.sampler.proxy import fewer_layers, proxy_trial
from autotuner.search.space.moves import settle_columns

_SURE, _LIKELY = 0.9, 0.5
"""Probability with which a proxy should fit before layers are removed from it, and the lower one that is enough if no
more layers can be removed."""

_SHRINKING = (
    "data_parallel_replicate_degree",
    "data_parallel_shard_degree",
    "pipeline_parallel_degree",
    "virtual_stages_per_rank",
    "pipeline_schedule",
    "shard_level",
    "first_stage_less_layers",
    "last_stage_less_layers",
)
"""Fields in which a proxy may differ from its layout, in addition to options that have no effect where a group has only
one rank."""

_DECIDING = (
    *_SHRINKING,
    "tensor_parallel_degree",
    "context_parallel_degree",
    "expert_parallel_degree",
    "micro_batch_size",
    "recompute_every",
)
"""Fields that determine the proxy of a layout."""

_OF_THE_JOB = ("num_layers", "num_dense_layers", "global_batch_size")
"""Fields, other than those of the layout, in which proxy trials differ."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ProxyTrials:
    """The layouts of a job that have a proxy trial on a smaller cluster, and the reasons why others have none.

    A proxy trial runs a smaller layout in place of a full-size one.
    """

    job: Job
    """Job of the layouts."""
    cluster: Cluster
    """Cluster on which trials run."""
    layouts: LayoutColumns
    """Layouts for which there is a proxy trial."""
    depth: Integers
    """Largest number of layers per stage in the proxy of each layout."""
    which: Integers
    """Number of the proxy trial of each layout. Layouts with the same number share one proxy trial."""
    refused: Sequence[tuple[str, int]]
    """Reasons why some layouts have no proxy, with the number of layouts; the most frequent first."""
    whole_model: bool
    """True for proxies that run the whole model, as for ``proxy_trial``."""

    def __len__(self) -> int:
        return len(self.layouts)

    @property
    def num_refused(self) -> int:
        """Number of layouts that have no proxy trial (a smaller trial that runs in place of the layout)."""
        return sum(count for _, count in self.refused)

    def trial_of(self, layout: Layout) -> ProxyTrial:
        """Return the proxy trial that runs in place of one of the layouts: a trial of a smaller layout."""
        depth = int(self.depth[rows_of(self.layouts, layout)[0]])
        found = proxy_trial(self.job, layout, self.cluster, most_layers_per_stage=depth, whole_model=self.whole_model)
        assert isinstance(found, ProxyTrial), "only layouts that a trial stands for are kept"
        return found


def rows_of(layouts: LayoutColumns, layout: Layout) -> Integers:
    """Return the indices of all rows of a table whose layout is equal to this layout."""
    rows = np.arange(len(layouts))
    for name in OPTIONS:
        rows = rows[getattr(layouts, name)[rows] == int(getattr(layout, name))]
    return rows


def proxy_trials(
    job: Job, layouts: LayoutColumns, cluster: Cluster, rules: Sequence[Rule], *, whole_model: bool = False
) -> ProxyTrials:
    """Return the proxy trials that run on a smaller cluster in place of these layouts.

    If a proxy trial would not fit in memory, the number of layers per stage is halved until it fits or cannot become
    smaller.

    Args:
        job: The full-size job of the layouts.
        layouts: Legal layouts of the job.
        cluster: Cluster on which trials run; its accelerators have the memory that a rank of a trial may use.
        rules: Rules that a trial must keep.
        whole_model: Keep all layers and pipeline ranks of the model, as for ``proxy_trial``.
    """
    depth = np.asarray(layers_per_stage(cast("Layout", layouts), job.model.num_layers), dtype=np.int64)
    pending, kept, refused = np.arange(len(layouts)), np.zeros(len(layouts), dtype=np.bool_), Counter[str]()
    memory = format_bytes(cluster.accelerator.memory_bytes)
    too_large = f"even with the fewest possible layers, no trial fits in {memory}"
    while pending.size:
        few = _Shrunk.of(layouts.take(pending), depth[pending], job, cluster, whole_model=whole_model)
        is_legal, fits = few.judge(rules, refused)
        kept[pending[fits]] = True
        is_open = is_legal & ~fits
        pending, fewer = pending[is_open], few.fewer_layers[is_open]
        if (fewer == 0).any():
            refused[too_large] += int((fewer == 0).sum())
        depth[pending] = fewer
        pending = pending[fewer > 0]
    rows = np.flatnonzero(kept)
    few = _Shrunk.of(layouts.take(rows), depth[rows], job, cluster, whole_model=whole_model)
    return ProxyTrials(
        job=job,
        cluster=cluster,
        layouts=layouts.take(rows),
        depth=depth[rows],
        which=few.numbers,
        refused=tuple((why, count) for why, count in refused.most_common() if count),
        whole_model=whole_model,
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class _Shrunk:
    """The proxy trials of some layouts of a job, one row per layout."""

    job: Job
    cluster: Cluster
    found: Sequence[Any]
    """Distinct proxies, which differ in ``_DECIDING``, or reasons why there is none."""
    of_row: Integers
    """Index of each row's proxy in ``found``."""
    fewer_layers: Integers
    """Number of layers per stage to try next if the proxy does not fit; 0: no more layers can be removed."""
    layouts: LayoutColumns
    """Layouts that the proxies run; for rows without a proxy, the layout itself."""

    @classmethod
    def of(cls, layouts: LayoutColumns, depth: Integers, job: Job, cluster: Cluster, *, whole_model: bool) -> _Shrunk:
        """Compute the proxy once for each combination of the deciding fields."""
        deciding, of_row = layouts.only(*_DECIDING, depth=depth).distinct(*_DECIDING, "depth")
        examples = np.zeros(len(deciding), dtype=np.int64)
        examples[of_row] = np.arange(len(layouts))
        found, fewer = [], []
        for row in examples.tolist():
            layout, deep = layouts.row(row), int(depth[row])
            found.append(proxy_trial(job, layout, cluster, most_layers_per_stage=deep, whole_model=whole_model))
            fewer.append(0 if whole_model else fewer_layers(job, layout, deep) or 0)
        small = _changed(layouts, found, of_row)
        return cls(
            job=job,
            cluster=cluster,
            found=found,
            of_row=of_row,
            fewer_layers=np.array(fewer, dtype=np.int64)[of_row] if found else depth,
            layouts=settle_columns(small, job),
        )

    @property
    def numbers(self) -> Integers:
        """Return a number for each row, which is equal if the proxies are equal."""
        own = {name: self._column(name) for name in _OF_THE_JOB}
        return self.layouts.only(*OPTIONS, **own).distinct(*OPTIONS, *own)[1]

    def judge(self, rules: Sequence[Rule], refused: Counter[str]) -> tuple[Booleans, Booleans]:
        """Return which proxies keep the rules, and which of these are likely enough to fit in memory.

        Args:
            rules: Rules that a trial must keep.
            refused: Counter that is increased for each reason why proxies break rules.
        """
        legal, fits = (np.zeros(len(self.of_row), dtype=np.bool_) for _ in range(2))
        has_trial = np.array([isinstance(one, ProxyTrial) for one in self.found], dtype=np.bool_)[self.of_row]
        refused.update(self.found[number].message for number in self.of_row[~has_trial].tolist())
        for job, rows in self._by_job():
            is_broken = _broken(self.layouts.take(rows), job, rules, refused)
            kept = rows[~is_broken]
            legal[kept] = True
            peak_bytes = predict_totals(self.layouts.take(kept), job).peak_bytes
            chance = fit_probability(peak_bytes, float(job.cluster.accelerator.memory_bytes))
            fits[kept] = chance >= np.where(self.fewer_layers[kept] > 0, _SURE, _LIKELY)
        return legal, fits

    def _by_job(self) -> Iterator[tuple[Job, Integers]]:
        """Yield the proxies with the same model, batch and cluster, with their rows."""
        jobs: dict[tuple[int, ...], list[int]] = {}
        for number, found in enumerate(self.found):
            if isinstance(found, ProxyTrial):
                key = found.num_layers, found.num_dense_layers, found.global_batch_size, found.num_ranks
                jobs.setdefault(key, []).append(number)
        for numbers in jobs.values():
            yield self.found[numbers[0]].job(self.job, self.cluster), np.flatnonzero(np.isin(self.of_row, numbers))

    def _column(self, name: str) -> Integers:
        return np.array([getattr(found, name, 0) for found in self.found], dtype=np.int64)[self.of_row]


def _changed(layouts: LayoutColumns, found: Sequence[Any], of_row: Integers) -> LayoutColumns:
    """Return the layouts with the changes that their proxies make."""
    columns: dict[str, npt.NDArray[Any]] = {name: getattr(layouts, name) for name in OPTIONS}
    trials = {number: one.layout for number, one in enumerate(found) if isinstance(one, ProxyTrial)}
    for name in _SHRINKING:
        values = {number: int(getattr(small, name)) for number, small in trials.items()}
        own = np.array([values.get(number, -1) for number in range(len(found))], dtype=np.int64)[of_row]
        columns[name] = np.where(own < 0, columns[name], own).astype(columns[name].dtype, copy=False)
    return LayoutColumns(columns)


def _broken(layouts: LayoutColumns, job: Job, rules: Sequence[Rule], refused: Counter[str]) -> Booleans:
    """Return which layouts break a rule. Each is counted in ``refused`` under the first rule that it breaks.

    The key in ``refused`` is the rule's message for the first layout that breaks it.
    """
    broken = np.zeros(len(layouts), dtype=np.bool_)
    for rule in rules:
        newly = broken_rows(layouts, job, [rule]) & ~broken
        if newly.any():
            refused[rule.message(layouts.row(int(newly.argmax())), job)] += int(newly.sum())
            broken |= newly
    return broken
