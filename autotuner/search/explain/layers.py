"""Gains of the layers of communication: the best with the first layer's options searched, with two layers', to five.

Layers are searched together with those before them, so that each best is found among more layouts than the one before
and is no worse. What a layer gives depends on that order; alone, or first, it may give more or less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

import numpy as np

from autotuner.core.caveat import Caveat
from autotuner.core.choices import CollectiveAlgorithm, CollectiveHierarchy, RankOrder, RankPlacement
from autotuner.core.columns import Floats, Integers, LayoutColumns, broken_rows
from autotuner.core.errors import InvalidInput
from autotuner.core.field_change import FieldChange, difference
from autotuner.core.job import Job
from autotuner.core.layout import DEFAULT_BUCKET_BYTES, OPTIONS, Layout
from autotuner.core.objective import Objective
from autotuner.core.option import CommunicationLayer
from autotuner.core.rules.legality import RULES
from autotuner.core.space import SearchSpace, default_space
from autotuner.core.trial import Trial
from autotuner.core.value import derived
from autotuner.costmodel.predict import predict_one, predict_totals
from autotuner.costmodel.uncertainty import fit_probability
from autotuner.search.caveats import caveats
from autotuner.search.space.legal import legal_layouts

_MOST_ROWS = 1_000_000
"""Layouts that the last layer's table has at most, those counted in that rules take out: seconds of one processor."""

_BLOCK = 1 << 16
"""Rows of a crossing that are judged and predicted at once."""

_BETTER = 1e-9
"""Share by which a value must be higher to count: less is the order of sums."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGain:
    """The gain from searching the options of one communication layer, with the best layout that the search found.

    The five layers are strategy (how ranks share the work), task scheduling, collectives, flow scheduling and network.
    The layers are searched in this order. In the search of one layer, options of earlier layers vary too, and options
    of later layers keep their defaults. The gain compares this best layout with the best layout of the layer before.
    """

    layer: CommunicationLayer
    options: tuple[str, ...]
    """Names of the layout fields that belong to the layer."""
    layout: Layout
    step_time_s: float
    value: float
    """Value that is compared: expected MFU, or the objective of the sweep for measured trials."""
    gain: float
    """Relative increase of ``value`` over the best layout of the layer before; 0 for the first layer."""
    changes: tuple[FieldChange, ...]
    """Options in which ``layout`` differs from the best layout of the layer before; empty if no better layout was
    found."""
    num_layouts: int
    """Number of layouts among which ``layout`` is the best one."""

    @property
    @derived
    def label(self) -> str:
        """Name of the layout, such as ``tp2 pp4 1f1b mb1``: its degrees above 1 and its non-default options."""
        return str(self.layout)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerReport:
    """The gains from searching the five layers of communication in turn, either all predicted or all measured.

    The first layer is the strategy (how ranks share the work), the last one is the network.
    """

    gains: tuple[LayerGain, ...]
    """Gains in the order of the layers. A report on measured trials has only layers that trials varied."""
    total_gain: float
    """Relative increase of the value from the first layer's best layout to the last layer's best layout."""
    caveats: tuple[Caveat, ...] = ()
    """Caveats for the reader."""

    @classmethod
    def of(cls, gains: Sequence[LayerGain], said: tuple[Caveat, ...] = ()) -> LayerReport:
        """Return a report of these gains, with the total gain from the first layer to the last.

        Args:
            gains: Gains in the order of the layers; at least one.
            said: Caveats for the reader.
        """
        return cls(gains=tuple(gains), total_gain=gains[-1].value / gains[0].value - 1, caveats=said)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepLayers:
    """The gains of a sweep's job as a search covers one layer of communication after the other.

    The five layers, such as strategy, collectives and network, are those of ``CommunicationLayer``. Gains are predicted
    and measured.
    """

    predicted: LayerReport
    """Predicted gains, for the strategies of the sweep's search space. Other layers have more values than most
    spaces."""
    measured: LayerReport | None
    """Gains among the ranked trials of the sweep; null if no trial has a rank."""


def options_of_layer(layer: CommunicationLayer) -> tuple[str, ...]:
    """Return the names of the layout options that belong to one layer of communication, such as the network."""
    return tuple(name for name, one in OPTIONS.items() if one.layer == layer)


# ---------------------------------------------------------------- predicted
def layer_report(job: Job, space: SearchSpace | None = None) -> LayerReport:
    """Search the communication layers of a job one after the other by prediction, and return the gain of each layer.

    The first layer is the strategy (how ranks share the work). The search takes the strategies from ``space``. For the
    other layers, it tries more values than most spaces have. If ``space`` fixes an option of another layer to a value
    that is not the default, the option keeps this value. In a large space, the search combines only the best strategies
    with the options of the other layers, so that it predicts at most a million layouts.

    Args:
        job: The job.
        space: The search space; None: the default space of the job.

    Raises:
        InvalidInput: No layout is predicted to fit in memory.
    """
    space = space or default_space(job)
    strategies = _strategies(job, space)
    searched = _searched(strategies, job, space)
    num_crossed = prod(len(values) for values in searched.values())
    table = strategies.take(slice(max(1, _MOST_ROWS // num_crossed)))
    gains: list[LayerGain] = []
    for layer in CommunicationLayer:
        axes = {name: values for name, values in searched.items() if OPTIONS[name].layer <= layer}
        if gains and not any(len(axes[name]) > 1 for name in options_of_layer(layer)):
            gains.append(_nothing_more(layer, gains[-1]))
            continue
        gains.append(_best_of(layer, table, axes, job, gains[-1] if gains else None))
    best = LayoutColumns.from_layouts([gain.layout for gain in gains])
    return LayerReport.of(gains, caveats(job, best))


def _strategies(job: Job, space: SearchSpace) -> LayoutColumns:
    """Layouts of the space that differ in strategy alone and fit, the best first."""
    others = [name for name, one in OPTIONS.items() if one.layer != CommunicationLayer.STRATEGY]
    table = legal_layouts(job, space.with_axes(**{name: (_plain(name, space),) for name in others}))
    value = _values(table, job)
    if not (value > 0).any():
        raise InvalidInput(
            "cluster",
            job.cluster.name,
            "no layout of the search space is predicted to fit into the memory of this cluster; choose "
            "a larger cluster or allow more memory-saving options",
        )
    return table.take(np.argsort(-value, kind="stable")[: int((value > 0).sum())])


def _plain(name: str, space: SearchSpace) -> int:
    """An option's value while its layer is not searched: the default, unless the space holds it at another."""
    values = space.values(name) or ()
    return values[0] if len(values) == 1 else OPTIONS[name].default


def _searched(table: LayoutColumns, job: Job, space: SearchSpace) -> Mapping[str, tuple[int, ...]]:
    """Values of every option of the other layers: the plain one, and what some strategy may have in its place.

    Details of another option (delegates, slack) are taken as they come: alone they mean nothing.
    """
    searched = dict[str, tuple[int, ...]]()
    for name, one in OPTIONS.items():
        if one.layer != CommunicationLayer.STRATEGY:
            plain = _plain(name, space)
            wider = _WIDER[name](job) if name in _WIDER and plain == one.default else ()
            others = [value for value in dict.fromkeys((*(space.values(name) or ()), *wider)) if value != plain]
            runs = (value for value in others if next(_crossed(table, {name: (value,)}, job), None) is not None)
            searched[name] = (plain, *(others if one.qualifies else runs))
    return searched


def _algorithms(job: Job) -> tuple[int, ...]:
    """Return what may be better than the library's choice: on GPUs, where it times its own, only sums in switches."""
    if job.cluster.accelerator.kind == "cpu":
        return (CollectiveAlgorithm.RING, CollectiveAlgorithm.TREE)
    adds = job.cluster.network is not None and job.cluster.network.adds
    return (CollectiveAlgorithm.COLLNET,) if adds else ()


_WIDER: Mapping[str, Callable[[Job], tuple[int, ...]]] = {
    "gradient_bucket_bytes": lambda job: (4 * DEFAULT_BUCKET_BYTES, 16 * DEFAULT_BUCKET_BYTES),
    "async_tensor_parallel": lambda job: (True,),
    "collective_algorithm": _algorithms,
    "collective_hierarchy": lambda job: tuple(CollectiveHierarchy),
    "pxn": lambda job: (False,),
    "queue_pairs": lambda job: (2, 4, 8) if job.cluster.network and not job.cluster.network.adapts_routes else (),
    "rank_order": lambda job: tuple(RankOrder),
    "rank_placement": lambda job: tuple(RankPlacement),
}
"""Values searched beyond the default space; values that a rule forbids are not predicted."""


def _best_of(
    layer: CommunicationLayer,
    table: LayoutColumns,
    axes: Mapping[str, tuple[int, ...]],
    job: Job,
    before: LayerGain | None,
) -> LayerGain:
    best, best_value, num_layouts = None, 0.0 if before is None else before.value * (1 + _BETTER), 0
    for crossed in _crossed(table, axes, job):
        values = _values(crossed, job)
        num_layouts += len(crossed)
        row = int(values.argmax())
        if values[row] > best_value:
            best, best_value = crossed.row(row), float(values[row])
    if best is None:
        assert before is not None, "strategies by themselves are predicted to fit"
        return replace(_nothing_more(layer, before), num_layouts=num_layouts)
    step_s = predict_one(best, job).step_time.total_s
    return _gain(layer, (best, step_s, best_value), before, num_layouts)


def _gain(
    layer: CommunicationLayer, found: tuple[Layout, float, float], before: LayerGain | None, num_layouts: int
) -> LayerGain:
    """Return the gain of a layout with its step time and value over the best of the layer before."""
    layout, step_s, value = found
    return LayerGain(
        layer=layer,
        options=options_of_layer(layer),
        layout=layout,
        step_time_s=step_s,
        value=value,
        gain=0.0 if before is None else value / before.value - 1,
        changes=() if before is None else difference(before.layout, layout),
        num_layouts=num_layouts,
    )


def _nothing_more(layer: CommunicationLayer, before: LayerGain) -> LayerGain:
    """The best of the layer before, where this one has nothing to search, or nothing better."""
    return replace(before, layer=layer, options=options_of_layer(layer), gain=0.0, changes=())


def _crossed(table: LayoutColumns, axes: Mapping[str, tuple[int, ...]], job: Job) -> Iterator[LayoutColumns]:
    """The table with every combination of the values, as far as it is legal so, many rows at once."""
    combinations = np.array(list(product(*axes.values())))
    at_once = max(1, _BLOCK // len(table))
    for some in np.split(combinations, range(at_once, len(combinations), at_once)):
        columns = {name: np.tile(getattr(table, name), len(some)) for name in OPTIONS}
        columns |= {name: np.repeat(some[:, place], len(table)) for place, name in enumerate(axes)}
        crossed = LayoutColumns.from_values(columns)
        legal: Integers = np.flatnonzero(~broken_rows(crossed, job, RULES))
        if len(legal):
            yield crossed.take(legal)


def _values(table: LayoutColumns, job: Job) -> Floats:
    """Expected MFU: predicted MFU times the probability to fit; 0 of what is predicted not to."""
    totals, limit_bytes = predict_totals(table, job), float(job.cluster.accelerator.memory_bytes)
    return np.where(totals.peak_bytes <= limit_bytes, totals.mfu * fit_probability(totals.peak_bytes, limit_bytes), 0.0)


# ---------------------------------------------------------------- measured
def measured_layers(objective: Objective, trials: Iterable[Trial]) -> LayerReport | None:
    """Return the gain of each communication layer among the ranked trials of a sweep; None if no trial is ranked.

    The result of a layer is its best trial: the best trial in which all options of later layers have their defaults. A
    layer without such a trial is left out. If an option has the same value in all trials, it counts as not searched,
    even if this value is not the default. If no trial varied the options of a layer, the gain of the layer is 0.

    Args:
        objective: Objective of the sweep, which ranks its trials.
        trials: All trials of the sweep.
    """
    ranked = objective.ranked(list(trials))
    searched = [name for name in OPTIONS if len({getattr(trial.layout, name) for trial in ranked}) > 1]
    gains: list[LayerGain] = []
    for layer in CommunicationLayer:
        later = [name for name in searched if OPTIONS[name].layer > layer]
        plain = [one for one in ranked if all(getattr(one.layout, name) == OPTIONS[name].default for name in later)]
        if plain:
            reached = plain[0].reached
            assert reached is not None, "it has a rank"
            found = plain[0].layout, objective.counted(reached).step_time_s, objective.value(reached)
            gains.append(_gain(layer, found, gains[-1] if gains else None, len(plain)))
    return LayerReport.of(gains) if gains else None
