"""How sure the answer of a sweep is: likely the best of how many, tied with what, how much of the space was tried."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from autotuner.core.layout import Layout
from autotuner.core.sweep import Prospects
from autotuner.core.trial import Trial, TrialState
from autotuner.search.standings import Standing
from autotuner.search.text.sentences import change_in_words, gain_in_words, likely, ranges

_NUM_NAMED = 3
"""Choices that a sentence names before it counts them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tie:
    """A layout that cannot be told from the best.

    Attributes:
        number: Of the trial, inside its sweep.
        label: The layout in short.
        change: What differs, from the best to it.
        probability_best: How likely it is the fastest, 0..1.
    """

    rank: int
    trial_id: str
    number: int
    label: str
    layout: Layout
    change: str
    probability_best: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Certainty:
    """How sure the answer is.

    Attributes:
        probability_best: How likely the best is the fastest of those ranked, 0..1.
        ties: Ranked layouts that cannot be told from it, the best first.
        num_ranked: Layouts that were compared.
        num_tried: Trials that came to an end, however, without repeats.
        num_legal: Layouts that the sweep may try, each of them predicted; None in records older than this field.
        num_fitting: Those that are predicted to fit; None like the one before.
        expected_gain: By which fraction one more trial is expected to raise the best value, or the hypervolume of the
            front; None where it is not known.
        sentences: All this, without full stops.
    """

    probability_best: float
    ties: tuple[Tie, ...]
    num_ranked: int
    num_tried: int
    num_legal: int | None
    num_fitting: int | None
    expected_gain: float | None
    sentences: tuple[str, ...]


def certainty(
    ranked: Sequence[Trial],
    trials: Sequence[Trial],
    standing: Mapping[str, Standing],
    prospects: Prospects | None,
    *,
    of_front: bool = False,
) -> Certainty:
    """How sure it is that the first of the ranked trials is the best there is.

    Args:
        ranked: The best first; at least one.
        trials: All.
        standing: Of the ranked ones, by id.
        prospects: What the search expects of going on; None where that is not known.
        of_front: It looks for a front, whose hypervolume is what one more trial is expected to raise.
    """
    best = ranked[0]
    ties = tuple(_ties(best, ranked, standing))
    sure = standing[best.id].probability_best
    num_tried = sum(trial.state in _TRIED and trial.repeats is None for trial in trials)
    return Certainty(
        probability_best=sure,
        ties=ties,
        num_ranked=len(ranked),
        num_tried=num_tried,
        num_legal=prospects.num_candidates if prospects else None,
        num_fitting=prospects.num_fitting if prospects else None,
        expected_gain=prospects.expected_gain if prospects else None,
        sentences=(*_of_ranked(sure, len(ranked), ties), *_of_space(num_tried, prospects, of_front=of_front)),
    )


_TRIED = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAILED)


def _ties(best: Trial, ranked: Sequence[Trial], standing: Mapping[str, Standing]) -> Iterator[Tie]:
    for rank, trial in enumerate(ranked[1:], 2):
        if standing[trial.id].tied_with_best:
            yield Tie(
                rank=rank,
                trial_id=trial.id,
                number=trial.number,
                label=str(trial.layout),
                layout=trial.layout,
                change=change_in_words(best.layout, trial.layout),
                probability_best=standing[trial.id].probability_best,
            )


def _of_ranked(sure: float, num_ranked: int, ties: Sequence[Tie]) -> Iterator[str]:
    if num_ranked == 1:
        yield "it is the only layout with a rank so far"
        return
    yield f"the chance that it is the best of the {num_ranked:,} ranked layouts is {likely(sure)}"
    match ties:
        case ():
            yield "no other layout is as fast within the noise of equal runs"
        case (one,):
            yield f"it is tied with {_tie(one)}"
        case (one, *_):
            yield f"it is tied with ranks {ranges(tie.rank for tie in ties)}; the closest is {_tie(one)}"


def _tie(tie: Tie) -> str:
    return f"rank {tie.rank} ({_difference(tie)}; its chance is {likely(tie.probability_best)})"


def _difference(tie: Tie) -> str:
    """What differs; of much only how many choices."""
    num_changes = tie.change.count(" → ")
    return tie.change if num_changes <= _NUM_NAMED else f"{num_changes} choices differ"


def _of_space(num_tried: int, prospects: Prospects | None, *, of_front: bool) -> Iterator[str]:
    if prospects is None:
        return
    legal, fitting = prospects.num_candidates, prospects.num_fitting
    yield f"{fitting:,} of {legal:,} legal layouts are predicted to fit in memory, and {num_tried:,} were tried"
    if prospects.expected_gain is not None:
        yield gain_in_words(prospects.expected_gain, "the front's hypervolume" if of_front else "the best value")
