"""The answer of a sweep: what to train with, how fast that is, how sure it is, what it beats and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotuner.core.convergence_gate import GateOutcome
from autotuner.core.fault_trace import FaultTrace
from autotuner.core.sweep import Prospects, SweepRequest
from autotuner.core.trial import Trial
from autotuner.core.units import format_rate
from autotuner.search.results.beaten import Beaten, Rival, beaten
from autotuner.search.results.certainty import Certainty, certainty
from autotuner.search.results.reached import Reached, ranked_times
from autotuner.search.results.why import why_faster
from autotuner.search.standings import standings
from autotuner.search.text.links import under_trace
from autotuner.search.text.sentences import ranges, signed


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """Why the best is faster than one of those that it beats.

    Attributes:
        than: What the other layout is, in words: ``rank 3``.
        label: The other layout in short.
        is_tie: The two cannot be told apart, so that there is little to explain.
        sentences: One to three, without full stops.
    """

    than: str
    trial_id: str
    label: str
    is_tie: bool
    sentences: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a sweep says so far; once it has ended, what it says.

    Attributes:
        sentence: The whole answer without a full stop.
        best: What to train with.
        is_in_use: It runs today.
        gate: What the loss gate says of a layout that changes the mathematics; None of any other.
        certainty: How sure that is.
        beaten: What it beats: what runs today where that is known, the next ranks, the best without each choice.
        why: Why it beats one of them; None of a layout alone.
    """

    sentence: str
    best: Reached
    is_in_use: bool
    gate: GateOutcome | None
    certainty: Certainty
    beaten: tuple[Beaten, ...]
    why: Why | None


def answer(request: SweepRequest, trials: Sequence[Trial], prospects: Prospects | None = None) -> Answer | None:
    """The answer of a sweep by its trials; None before one of them has a rank.

    Args:
        request: What was asked.
        trials: Every trial, repeats too.
        prospects: What its search expects of going on; None where that is not known.
    """
    ranked = request.objective.ranked(trials)
    if not ranked:
        return None
    standing = standings(ranked_times(request.objective, trials))
    best, rivals = ranked[0], beaten(request, ranked, standing)
    figures, sure = (
        Reached.of(best, request),
        certainty(ranked, trials, standing, prospects, of_front=bool(request.objective.front)),
    )
    return Answer(
        sentence=_sentence(figures, sure, rivals, trace=request.fault_trace),
        best=figures,
        is_in_use=request.challenge is not None and request.challenge.incumbent == best.layout,
        gate=_gate(best),
        certainty=sure,
        beaten=rivals,
        why=_why(best, rivals, {trial.id: trial for trial in ranked}, request),
    )


def _gate(best: Trial) -> GateOutcome | None:
    if best.gate is not None:
        return best.gate.outcome
    return None if best.layout.is_equivalent else GateOutcome.NOT_GATED


def _why(best: Trial, rivals: Sequence[Beaten], trials: Mapping[str, Trial], request: SweepRequest) -> Why | None:
    """Against what runs today, else the first that can be told from the best, else the first."""
    if not rivals:
        return None
    in_use = [one for one in rivals if one.rival is Rival.IN_USE]
    told_apart = sorted((one for one in rivals if not one.is_tie), key=lambda one: one.rank)
    other = (*in_use, *told_apart, *rivals)[0]
    name = other.said if other.rival is Rival.IN_USE else f"rank {other.rank}"
    return Why(
        than=name,
        trial_id=other.trial_id,
        label=other.label,
        is_tie=other.is_tie,
        sentences=why_faster(
            best, trials[other.trial_id], request.trial_job, other.gain, name, objective=request.objective
        ),
    )


def _sentence(best: Reached, sure: Certainty, rivals: Sequence[Beaten], *, trace: FaultTrace | None) -> str:
    """Return the layout, its speed, and the first layout that it beats or is tied with."""
    noun = "MFU" if best.healthy_mfu is None or trace is None else f"MFU {under_trace(trace, best.healthy_mfu)}"
    reached = f"{100 * best.mfu:.1f} ± {100 * best.mfu * best.relative_error:.1f} % {noun}, {best.said or best.source}"
    rate = format_rate(best.tokens_per_s, "token/s")
    return f"{best.label}: {reached}, {rate}{_against(sure, rivals)}"


def _against(sure: Certainty, rivals: Sequence[Beaten]) -> str:
    if rivals and not rivals[0].is_tie:
        return f"; {signed(rivals[0].gain, rivals[0].gain_error)} over {rivals[0].said}"
    if not sure.ties:
        return ""
    return f"; tied with rank{'s' if len(sure.ties) > 1 else ''} {ranges(tie.rank for tie in sure.ties)}"
