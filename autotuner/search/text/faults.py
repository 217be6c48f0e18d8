"""What befalls links, in words: a link's state, a trace, and what a layout keeps of its speed under it."""

from __future__ import annotations

from autotuner.core.fault_trace import FaultTrace
from autotuner.core.link import LinkHealth
from autotuner.core.units import format_seconds


def link_in_words(health: LinkHealth) -> str:
    """What ails a link: ``link 2_3 60 ms late``."""
    name = f"link {health}" if health.ends is not None else f"every {str(health).replace('_', '-')} link"
    return f"{name} {_state(health)}"


def trace_in_words(trace: FaultTrace) -> str:
    """Which links it befalls, and for how long: ``20 steps in which link 2_3 is 60 ms late for 12``."""
    parts = [f"{_state_of(stretch.links)} for {stretch.num_steps}" for stretch in trace.stretches() if stretch.links]
    steps = f"{trace.num_steps} {'step' if trace.num_steps == 1 else 'steps'}"
    return f"{steps} in which {', then '.join(parts)}" if parts else f"{steps} in which no link fails"


def under_trace(trace: FaultTrace, healthy_mfu: float) -> str:
    """What robust MFU is, beside the healthy one: ``under the fault trace of 20 steps (41.0 % healthy)``."""
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
