"""Layouts that hold every legal pair of values of two axes: a covering array of strength two, under the rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain, combinations, product

from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.link import LinkHealth
from autotuner.core.model import TransformerSpec
from autotuner.core.rules.legality import RULES
from autotuner.core.rules.trial_job import TRIAL_RULES
from autotuner.core.workload import Workload
from tests.builders import cpu_cluster, cpu_layout, minds_nodes
from tests.oracle.axes import AXES, DENSE, Value

Pair = frozenset[Value]

MAX_RANKS = 8

MAX_COMPILING_RANKS = 4
"""Every rank runs the compiler for itself, half a minute of a core, and the ranks share the cores."""

WORKLOAD = Workload(seq_len=32, global_batch_size=8)
"""Enough sequences for 4 replicas to fill pipelines of 2 ranks with micro-batches of 1."""

_MOST_ASKED = (("pipeline", "replicas", "precision"), ("pipeline", "replicas", "shards"))
"""Axes whose plain value most others cannot do with: replicas outermost need stages and replicas, their gradients
summed in fp32 bf16 as well, and expert ranks shards."""

_RULES = [*TRIAL_RULES, *RULES]  # whichever was broken last comes first: it is likely to be broken again


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A layout to be run, and the values it was made of."""

    values: tuple[Value, ...]
    model: TransformerSpec
    layout: Layout
    workload: Workload = WORKLOAD

    @classmethod
    def of(cls, values: Sequence[Value]) -> Case:
        """The values together; axes that none belongs to stay plain."""
        changes = {name: given for value in values for name, given in value.changes.items()}
        model = next((value.model for value in values if value.model is not None), DENSE)
        lengths = next((value.lengths for value in values if value.lengths is not None), None)
        workload = replace(WORKLOAD, lengths=lengths)
        return cls(values=tuple(values), model=model, layout=cpu_layout(**changes), workload=workload)

    def __str__(self) -> str:
        return f"{self.model.name} {self.layout}"


def one_by_one() -> tuple[Case, ...]:
    """Each value with all other axes plain, and what it cannot do without."""
    found = []
    for axis, values in AXES.items():
        for value in values[1:]:
            found.append(_least(axis, value))
    return tuple(found)


def _least(axis: str, value: Value) -> Case:
    """The value with as few others as make it legal: fp32 reduction needs bf16 and replicas, and so on."""
    others = [name for name in AXES if name != axis]
    for num_others in range(3):
        for chosen in combinations(others, num_others):
            for companions in product(*(AXES[name][1:] for name in chosen)):
                case = Case.of([value, *companions])
                if is_legal(case):
                    return case
    raise AssertionError(f"no legal layout has {value}")


@cache
def covering_set() -> tuple[Case, ...]:
    """Every pair of values that some legal layout of at most 8 ranks holds, in few layouts.

    Each layout begins with one pair that none has yet, and takes up further values as long as they bring new pairs.
    """
    cases = []
    missing = set(_all_pairs())
    for pair in sorted(missing, key=lambda p: sorted(value.label for value in p)):
        if pair in missing:
            missing.discard(pair)  # even where no legal layout holds it
            if first := _first_legal(pair):
                cases.append(_filled(first, pair, missing))
                missing -= pairs_of(cases[-1])
    return tuple(cases)


def _filled(case: Case, pair: Pair, missing: Set[Pair]) -> Case:
    """The layout with other values beside the pair, for as long as one of them brings more missing pairs."""
    gain, most = len(missing & pairs_of(case)), -1
    while gain > most:
        most = gain
        for values in _changed(case, pair):
            if (more := len(missing & _pairs(values))) > gain and (found := _legal_case(values)):
                case, gain = found, more
    return case


def _changed(case: Case, pair: Pair) -> Iterator[tuple[Value, ...]]:
    """The values with each one of them changed to each other of its axis, but for those of the pair."""
    for place, axis in enumerate(AXES.values()):
        if (held := case.values[place]) not in pair:
            for value in axis:
                if value is not held:
                    yield (*case.values[:place], value, *case.values[place + 1 :])


def pairs_of(case: Case) -> frozenset[Pair]:
    """The pairs of values that a layout covers."""
    return _pairs(case.values)


def is_legal(case: Case) -> bool:
    """The rules of layouts and trials hold on a machine of as many cores as the layout has ranks."""
    if case.layout.world_size > (MAX_COMPILING_RANKS if case.layout.compiled else MAX_RANKS):
        return False
    job = job_of(case)
    for place, rule in enumerate(_RULES):
        if rule.broken(case.layout, job):
            _RULES.insert(0, _RULES.pop(place))
            return False
    return True


def job_of(case: Case) -> Job:
    """The case on a machine of as many cores as it has ranks, or on two of half as many each; links are not alike."""
    num_nodes = 2 if minds_nodes(case.layout) and case.layout.world_size > 1 else 1
    return _job(case.model, case.workload, num_nodes, case.layout.world_size // num_nodes)


@cache
def _job(model: TransformerSpec, workload: Workload, num_nodes: int, num_cores: int) -> Job:
    cluster = cpu_cluster(num_cores, num_nodes=num_nodes)
    if cluster.world_size > 1:
        cluster = replace(cluster, link_health=(LinkHealth(ends=(0, 1), delay_s=1e-3),))
    return Job(model=model, cluster=cluster, workload=workload)


def _legal(fixed: Mapping[str, Value]) -> Iterator[Case]:
    """Legal layouts with the fixed values; what a rule asks of a value is one or two others, so two more vary.

    Two values may ask for three between them, which are of the axes that most is asked of.
    """
    open_axes = [name for name in AXES if name not in fixed]
    asked = [axes for axes in _MOST_ASKED if not set(axes) & set(fixed)]
    plain = {name: values[0] for name, values in AXES.items()}
    for varied in chain(combinations(open_axes, min(2, len(open_axes))), asked):
        for chosen in product(*(AXES[name] for name in varied)):
            row = plain | dict(fixed) | dict(zip(varied, chosen, strict=True))
            if case := _legal_case(tuple(row.values())):
                yield case


@cache
def _legal_case(values: tuple[Value, ...]) -> Case | None:
    """The values together, if they are legal: many ways of fixing some and varying others lead to the same ones."""
    case = Case.of(values)
    return case if is_legal(case) else None


def _all_pairs() -> Iterator[Pair]:
    for left, right in combinations(AXES.values(), 2):
        yield from (frozenset(pair) for pair in product(left, right))


def _first_legal(pair: Pair) -> Case | None:
    return next(_legal(_fixed(pair)), None)


def _fixed(pair: Pair) -> dict[str, Value]:
    return {name: value for name, values in AXES.items() for value in values if value in pair}


def _pairs(values: Sequence[Value]) -> frozenset[Pair]:
    return frozenset(frozenset(pair) for pair in combinations(values, 2))
