"""Links in words: their faults, and what a running pipeline reports about them."""

from __future__ import annotations

from collections.abc import Iterator

from autotuner.core.fault_trace import FaultTrace
from autotuner.core.link import LinkHealth
from autotuner.core.measurement import LinkEvent, LinkEventKind
from autotuner.core.units import format_seconds


def link_in_words(health: LinkHealth) -> str:
    """Describe a link and its fault: ``link 2_3 60 ms late``."""
    name = f"link {health}" if health.ends is not None else f"every {str(health).replace('_', '-')} link"
    return f"{name} {_state(health)}"


def trace_in_words(trace: FaultTrace) -> str:
    """Describe a fault trace (faults that are injected into links, each for some steps).

    Example: ``20 steps in which link 2_3 is 60 ms late for 12``.
    """
    parts = [f"{_state_of(stretch.links)} for {stretch.num_steps}" for stretch in trace.stretches() if stretch.links]
    steps = f"{trace.num_steps} {'step' if trace.num_steps == 1 else 'steps'}"
    return f"{steps} in which {', then '.join(parts)}" if parts else f"{steps} in which no link fails"


def under_trace(trace: FaultTrace, healthy_mfu: float) -> str:
    """Describe the conditions of a robust MFU (the MFU over all steps of a fault trace).

    Example: ``under the fault trace of 20 steps (41.0 % healthy)``.

    Args:
        trace: The fault trace (a schedule of faults that are injected into links).
        healthy_mfu: MFU without faults, 0 to 1.
    """
    return f"under the fault trace of {trace.num_steps} steps ({100 * healthy_mfu:.1f} % healthy)"


def _state_of(links: tuple[LinkHealth, ...]) -> str:
    return " and ".join(f"link {health} is {_state(health)}" for health in links)


def _state(health: LinkHealth) -> str:
    if health.is_dead:
        return "dead"
    said = []
    if health.delay_s:
        jitter = f" ± {format_seconds(health.jitter_s)}" if health.jitter_s else ""
        said.append(f"{format_seconds(health.delay_s)}{jitter} late")
    if health.bandwidth_bytes_per_s is not None:
        said.append(f"at {8 * health.bandwidth_bytes_per_s / 1e6:.4g} Mbit/s")
    return " and ".join(said) or "healthy"


_FINDINGS = {
    LinkEventKind.LINK_SLOW: "slow link",
    LinkEventKind.LINK_RECOVERED: "link recovered",
    LinkEventKind.LINK_DEAD: "dead link",
    LinkEventKind.RANK_SLOW: "slow rank",
    LinkEventKind.RANK_RECOVERED: "rank recovered",
    LinkEventKind.REPLANNED: "re-planned",
}


def event_in_words(event: LinkEvent) -> tuple[str, str]:
    """Return the name and details of an event in a pipeline: ``("slow link", "stages 2 and 3, 60 ms late")``."""
    return _FINDINGS[event.kind], ", ".join(_particulars(event))


def event_sentence(event: LinkEvent) -> str:
    """Describe an event of a link with its step: ``step 8: the link between stages 2 and 3 is 60 ms late``."""
    return f"step {event.step}: {_said(event)}"


def _said(event: LinkEvent) -> str:
    ends = " and ".join(map(str, event.stages))
    match event.kind:
        case LinkEventKind.LINK_SLOW:
            return f"the link between stages {ends} is {format_seconds(event.delay_s)} late"
        case LinkEventKind.LINK_RECOVERED:
            return f"the link between stages {ends} has recovered"
        case LinkEventKind.LINK_DEAD:
            return f"the link between stages {ends} is dead"
        case LinkEventKind.RANK_SLOW:
            return (
                f"stage {ends} computes {format_seconds(event.delay_s)} longer per micro-batch; the links have no fault"
            )
        case LinkEventKind.RANK_RECOVERED:
            return f"stage {ends} is as fast as before"
        case LinkEventKind.REPLANNED:
            ahead = f"{' '.join(map(str, event.warm_up))} forwards ahead"
            return f"re-planned: {ahead}, sends {'delegated' if event.delegated else 'inline'}"


def _particulars(event: LinkEvent) -> Iterator[str]:
    if event.stages:
        noun = "stage" if len(event.stages) == 1 else "stages"
        yield f"{noun} {' and '.join(map(str, event.stages))}"
    if event.delay_s:
        yield f"{format_seconds(event.delay_s)} late"
    if event.kind is LinkEventKind.REPLANNED:
        if event.warm_up:
            yield f"{' '.join(map(str, event.warm_up))} forwards ahead"
        yield f"sends {'delegated' if event.delegated else 'inline'}"
    if event.cost_s:
        yield f"took {format_seconds(event.cost_s)}"
