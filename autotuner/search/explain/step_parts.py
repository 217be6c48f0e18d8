"""Where a step's time goes, predicted and measured in one vocabulary: parts that mean the same on both sides.

A prediction knows kinds of work and groups of ranks; a profiler knows passes and kinds of collectives. Forward and
backward are on both sides. Collectives are set against each other by who calls which (``_CALLS``): where two groups
call the same kind, what was measured of it cannot be divided, and both groups are one part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Literal

from autotuner.core.choices import ContextExchange, ShardLevel
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.measurement import Breakdown, PhaseTimes
from autotuner.core.prediction import StepTime
from autotuner.core.units import format_seconds
from autotuner.costmodel.details import pass_shares
from autotuner.search.explain.limits import PART_WORDS, limit_of
from autotuner.search.text.sentences import likely, listed, percent

PartKind = Literal["forward", "backward", "weight", "recompute", "communication", "idle", "optimizer", "other"]
"""What a part is, for who paints or sums them up."""

_Atom = Literal[
    "forward",
    "backward",
    "weight",
    "recompute",
    "tensor",
    "context",
    "expert",
    "data",
    "pipeline",
    "idle",
    "optimizer",
]
"""The least that a prediction tells apart."""

_ATOMS: Mapping[_Atom, tuple[PartKind, str, str]] = {
    "forward": ("forward", "forward", ""),
    "backward": ("backward", "backward", ""),
    "weight": ("weight", "weight gradients", ""),
    "recompute": ("recompute", "recomputation", "recompute_s"),
    "tensor": ("communication", "tensor collectives", "tensor_communication_s"),
    "context": ("communication", "context collectives", "context_communication_s"),
    "expert": ("communication", "expert collectives", "expert_communication_s"),
    "data": ("communication", "data collectives", "data_communication_s"),
    "pipeline": ("communication", "pipeline sends", "pipeline_communication_s"),
    "idle": ("idle", "pipeline idle", "bubble_s"),
    "optimizer": ("optimizer", "optimizer", "optimizer_s"),
}
"""In the order of a picture: its kind, its name alone, and the field of ``StepTime`` that it is, if it is one."""

_WORTH_SAYING = 0.01
"""Share of a step from which on recomputation is worth a sentence."""

_PASSES: frozenset[_Atom] = frozenset(("forward", "backward", "weight", "recompute"))
_COMPUTED = ("matrix_s", "attention_s", "pointwise_s", "host_s")
_IN_PASSES = (*_COMPUTED, "recompute_s", "offload_s")
"""Fields of ``StepTime`` that forward and backward passes are made of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPart:
    """A part of a step, on both sides where both are known."""

    name: str
    """In words: ``tensor and data collectives``."""
    kind: PartKind
    predicted_s: float | None
    """None where no law of the model explains it."""
    measured_s: float | None
    """None where nothing was measured, or nothing divided the step."""
    limit: str
    """What limits it, as a sentence without a full stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepParts:
    """A whole step, part by part in one order."""

    parts: tuple[StepPart, ...]
    """Those that take time on either side."""
    predicted_s: float
    """Sum of the predicted parts: the predicted step."""
    measured_s: float | None
    """Sum of the measured parts: the step that was divided, not the median of the timed ones. None where nothing
    divided one."""
    recompute_s: float
    """What of the prediction is computation done again, which a measured backward pass holds, too."""
    rank: int | None
    """Whose step was profiled; None where it was not, or where the slowest rank of each phase was timed."""

    @property
    def largest_loss(self) -> str:
        """How much of the step computes, and the largest parts of the rest: sentences.

        As it was measured, where it was; phases do not tell it, as what interrupts a pass counts as the pass there.
        """
        is_measured = self.measured_s is not None
        seconds = {
            part.name: (part.kind, (part.measured_s if is_measured else part.predicted_s) or 0.0) for part in self.parts
        }
        whole_s = sum(each_s for _, each_s in seconds.values())
        lost = {name: s for name, (kind, s) in seconds.items() if kind not in ("forward", "backward", "weight")}
        said = f"{likely(1 - sum(lost.values()) / whole_s)} of the step computes."
        if is_measured and self.recompute_s >= _WORTH_SAYING * self.predicted_s:
            share = percent(self.recompute_s / self.predicted_s)
            said += f" Of that, recomputation is predicted to be {format_seconds(self.recompute_s)} ({share})."
        largest = sorted((name for name in lost if lost[name] > 0), key=lambda name: -lost[name])[:2]
        if not largest:
            return said
        first, *second = (f"{name}, {format_seconds(lost[name])}" for name in largest)
        then = f", then {second[0]}" if second else ""
        return f"{said} The largest part of the rest is {first} ({percent(lost[largest[0]] / whole_s)}){then}."


def step_parts(
    layout: Layout, job: Job, predicted: StepTime, measured: Breakdown | PhaseTimes | None = None
) -> StepParts:
    """The parts of a legal layout's step, as predicted of it in the job, and as measured of a step, if anything was.

    Activations that are copied to the host and back are half of each pass; a prediction does not divide them.
    """
    atoms_s = _atoms(layout, job, predicted)
    measured_s = _fields(measured)
    claims = {name: _measured_as(name, layout, measured) for name in measured_s}
    parts = [
        StepPart(
            name=_name(atoms),
            kind=next(kind for atom, (kind, _, _) in _ATOMS.items() if atom in atoms),
            predicted_s=sum(atoms_s[atom] for atom in atoms),
            measured_s=None if measured is None else sum(s for name, s in measured_s.items() if claims[name] & atoms),
            limit=_limit(atoms, atoms_s, layout, job, predicted),
        )
        for atoms in _merged(filter(None, claims.values()))
    ]
    if measured is not None:
        unclaimed_s = sum(s for name, s in measured_s.items() if not claims[name])
        limit = "measured alone: no law of the model explains it"
        parts.append(
            StepPart(name="anything else", kind="other", predicted_s=None, measured_s=unclaimed_s, limit=limit)
        )
    return StepParts(
        parts=tuple(part for part in parts if part.predicted_s or part.measured_s),
        predicted_s=predicted.total_s,
        measured_s=sum(measured_s.values()) if measured is not None else None,
        recompute_s=predicted.recompute_s,
        rank=measured.rank if isinstance(measured, Breakdown) else None,
    )


def measured_fields(layout: Layout, measured: Breakdown | PhaseTimes) -> Mapping[tuple[str, ...], float]:
    """Return the measured seconds of each set of ``StepTime`` fields that the measurement tells apart.

    All that the passes compute is one set, and it holds the time that no law explains. The sets have no field in
    common, and their seconds sum to the measured step.
    """
    measured_s = _fields(measured)
    claims = {name: _measured_as(name, layout, measured) for name in measured_s}
    found: dict[tuple[str, ...], float] = {}
    for atoms in _merged([_PASSES, *filter(None, claims.values())]):
        own = [field for atom, (_, _, field) in _ATOMS.items() if atom in atoms - _PASSES]
        together = (*_IN_PASSES, *own) if atoms & _PASSES else tuple(own)
        found[together] = sum(seconds for name, seconds in measured_s.items() if (claims[name] or _PASSES) & atoms)
    return found


# ---------------------------------------------------------------- the predicted side
def _atoms(layout: Layout, job: Job, predicted: StepTime) -> dict[_Atom, float]:
    shares = pass_shares(layout, job)
    computed_s = sum(getattr(predicted, name) for name in _COMPUTED)
    atoms_s: dict[_Atom, float] = {
        "forward": shares.forward * computed_s + predicted.offload_s / 2,
        "backward": shares.backward * computed_s + predicted.offload_s / 2,
        "weight": shares.weight * computed_s,
    }
    return atoms_s | {atom: getattr(predicted, field) for atom, (_, _, field) in _ATOMS.items() if field}


# ---------------------------------------------------------------- the measured side
def _fields(measured: Breakdown | PhaseTimes | None) -> dict[str, float]:
    if measured is None:
        return {}
    return {f.name: getattr(measured, f.name) for f in fields(measured) if f.name.endswith("_s")}


def _measured_as(name: str, layout: Layout, measured: Breakdown | PhaseTimes | None) -> frozenset[_Atom]:
    """Which atoms what was measured under that name is made of; none of what no law explains."""
    return _of_phases(name, layout) if isinstance(measured, PhaseTimes) else _of_breakdown(name, layout)


def _of_breakdown(name: str, layout: Layout) -> frozenset[_Atom]:
    known: dict[str, tuple[_Atom, ...]] = {
        "forward_s": ("forward",),
        "backward_s": ("backward", "weight", "recompute"),
        "send_receive_s": ("pipeline",) if layout.pipeline_parallel_degree > 1 else (),
        "pipeline_idle_s": ("idle",) if layout.pipeline_parallel_degree > 1 else (),
        "optimizer_s": ("optimizer",),
    }
    if name in known:
        return frozenset(known[name])
    return frozenset(group for group in _GROUPS if name in _calls(group, layout))


_GROUPS: tuple[_Atom, ...] = ("tensor", "context", "expert", "data")


def _calls(group: _Atom, layout: Layout) -> frozenset[str]:
    """Kinds of collectives that take a group's time in our trial job; a few small sums beside these are not counted.

    Tensor ranks reduce (arXiv 1909.08053), or gather and scatter where the sequence is split between
    (arXiv 2205.05198), and gather logits where the loss needs them whole. Context ranks exchange parts of the sequence,
    or gather it. Experts' ranks exchange tokens. Data ranks reduce gradients, or gather and scatter what they shard.
    """
    gathers = ("all_gather_s", "reduce_scatter_s")
    match group:
        case "tensor" if layout.tensor_parallel_degree > 1:
            logits = () if layout.loss_parallel else ("all_gather_s",)
            return frozenset(gathers if layout.sequence_parallel else ("all_reduce_s", *logits))
        case "context" if layout.context_parallel_degree > 1:
            exchanges = layout.context_exchange != ContextExchange.ALL_GATHER
            return frozenset(("all_to_all_s",) if exchanges else gathers)
        case "expert" if layout.expert_parallel_degree > 1:
            return frozenset(("all_to_all_s",))
        case "data" if layout.data_parallel_degree * layout.context_parallel_degree > 1:
            sharded = layout.shard_level is not ShardLevel.NONE
            reduces = not sharded or layout.data_parallel_replicate_degree > 1
            return frozenset((*(gathers if sharded else ()), *(("all_reduce_s",) if reduces else ())))
        case _:
            return frozenset()


def _of_phases(name: str, layout: Layout) -> frozenset[_Atom]:
    """Phases of timed steps: what interrupts a pass counts as the pass; gradients that wait for weights do, too."""
    if name == "optimizer_s":
        return frozenset(("optimizer",))
    passes = frozenset(atom for atom in _ATOMS if atom not in ("data", "optimizer"))
    if layout.shard_level >= ShardLevel.GRADIENTS or layout.pipeline_parallel_degree > 1:
        return passes | {"data"}
    return passes if name == "forward_backward_s" else frozenset(("data",))


# ---------------------------------------------------------------- both
def _merged(claims: Iterable[frozenset[_Atom]]) -> Sequence[frozenset[_Atom]]:
    """Sets of atoms that nothing measured tells apart, in the order of a picture."""
    parts: list[frozenset[_Atom]] = [frozenset((atom,)) for atom in _ATOMS]
    for claim in claims:
        touched = [part for part in parts if part & claim]
        first = parts.index(touched[0])
        parts = [part for part in parts if part not in touched]
        parts.insert(first, frozenset().union(*touched))
    return parts


def _name(atoms: frozenset[_Atom]) -> str:
    every = [atom for atom in _ATOMS if atom in atoms]
    if atoms <= _PASSES or len(every) == 1:
        return _ATOMS[every[0]][1]
    if atoms & _PASSES:
        return "forward and backward, with what interrupts them"
    return f"{listed(every)} collectives"


def _limit(
    atoms: frozenset[_Atom], atoms_s: Mapping[_Atom, float], layout: Layout, job: Job, predicted: StepTime
) -> str:
    """What limits a part: of a pass its largest kind of work, of merged parts each that takes time."""
    if "forward" in atoms:
        return _kinds_of_work(layout, job, predicted)
    said = []
    if "backward" in atoms:
        said.append("the same work for gradients of inputs" + (" and weights" if not atoms_s["weight"] else ""))
    if "weight" in atoms and atoms_s["weight"]:
        said.append("gradients of weights, which the schedule computes when a rank would wait")
    if "recompute" in atoms and atoms_s["recompute"]:
        of_it = f"{format_seconds(atoms_s['recompute'])} of it predicted for " if "backward" in atoms else ""
        said.append(of_it + limit_of("recompute_s", layout, job))
    others = [atom for atom in _ATOMS if atom in atoms - _PASSES and (atoms_s[atom] or len(atoms) == 1)]
    return "; ".join((*said, *(limit_of(_ATOMS[atom][2], layout, job) for atom in others)))


def _kinds_of_work(layout: Layout, job: Job, predicted: StepTime) -> str:
    """What computation is made of, the largest kind with its limit."""
    shares = {name: getattr(predicted, name) for name in _COMPUTED if getattr(predicted, name) > 0}
    first, *others = sorted(shares, key=lambda name: -shares[name])
    rest = "".join(f", {PART_WORDS[name]} {percent(shares[name] / sum(shares.values()))}" for name in others)
    whole = f"{PART_WORDS[first]} {percent(shares[first] / sum(shares.values()))}{rest}"
    return f"{whole}; most by {limit_of(first, layout, job)}"
