"""What a challenged sweep found, in words that pages, the command line and announcements share."""

from __future__ import annotations

from collections.abc import Iterator

from autotuner.core.cluster import SIMULATED
from autotuner.core.comparison import ChallengeFindings, Comparison, Decision, RunGroup


def findings_in_words(found: ChallengeFindings, *, is_simulated: bool = False) -> tuple[str, ...]:
    """One sentence without a full stop for each thing that is known; none before anything ran.

    Args:
        found: What is known.
        is_simulated: Nothing ran, which each sentence then says.
    """
    mark = f"{SIMULATED}: " if is_simulated else ""
    return tuple(f"{mark}{sentence}" for sentence in _sentences(found))


def _sentences(found: ChallengeFindings) -> Iterator[str]:
    if found.measured is not None and found.death:
        yield f"{found.measured} could not be measured: {found.death}"
    if found.measured is not None and found.runs is not None:
        yield f"{found.measured} reached {runs_in_words(found.runs)}{_beside_baseline(found.against_baseline)}"
    if found.challenger is not None:
        yield _challenger(found, str(found.challenger))


def _beside_baseline(comparison: Comparison | None) -> str:
    if comparison is None:
        return ", and has no baseline yet"
    return f", {comparison.detail}: {decision_in_words(comparison)} than its baseline"


def _challenger(found: ChallengeFindings, challenger: str) -> str:
    if found.challenger_runs is None:
        return f"{challenger} was faster when it was found, and did not run again"
    reached = f"{challenger} reached {runs_in_words(found.challenger_runs)}"
    if found.gain is None:
        return reached
    verdict = "better" if found.is_better else "not known to be better"
    return f"{reached} by turns with {found.measured}, {found.gain.detail}: {verdict}"


def runs_in_words(runs: RunGroup) -> str:
    """``41.3 % MFU in 4 runs``."""
    noun = "run" if len(runs.rates) == 1 else "runs"
    return f"{100 * runs.mfu:.1f} % MFU in {len(runs.rates)} {noun}"


def decision_in_words(comparison: Comparison) -> str:
    """``slower``, ``not slower``, or ``not known to be slower``."""
    match comparison.decision:
        case Decision.SLOWER:
            return "slower"
        case Decision.NOT_SLOWER:
            return "not slower"
        case Decision.UNDECIDED:
            return "not known to be slower"
