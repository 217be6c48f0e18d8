"""Facts of a trial in words: its measurement, how exact it is, what it costs, and why it has no rank."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from autotuner.core.convergence_gate import GateOutcome
from autotuner.core.measurement import Breakdown, Measurement, Power, ResourceCost
from autotuner.core.trial import Trial
from autotuner.core.units import format_bytes, format_seconds
from autotuner.report.links import event_sentence
from autotuner.report.words import gate_in_words, percent

EMULATED = "emulated, not ranked"
"""Note beside a trial on hardware that lacks the number format, so that software emulated it."""


def resource_cost_in_words(resource_cost: ResourceCost | None, tokens_per_s: float) -> str:
    """Return what a million tokens cost: ``0.42 kWh, $0.31, 0.16 kg CO2; complexity 4``; unknown parts are left out.

    Args:
        resource_cost: Resource cost of the layout (energy, price, CO2, complexity); None: unknown, which gives a dash.
        tokens_per_s: Throughput of the whole job.
    """
    if resource_cost is None:
        return "–"
    kwh = resource_cost.kwh_per_million_tokens(tokens_per_s)
    price = resource_cost.price_per_million_tokens(tokens_per_s)
    kg = resource_cost.co2_kg_per_million_tokens(tokens_per_s)
    known = [
        "" if kwh is None else f"{kwh:.3g} kWh",
        "" if price is None else f"${price:.3g}",
        "" if kg is None else f"{kg:.3g} kg CO2",
    ]
    return "; ".join(
        part for part in (", ".join(filter(None, known)), f"complexity {resource_cost.complexity:g}") if part
    )


def resource_cost_facts(resource_cost: ResourceCost, tokens_per_s: float) -> Iterator[tuple[str, str]]:
    """Yield the known facts about a job's resource cost (energy, price, CO2, complexity), each as its name and text.

    Args:
        resource_cost: Resource cost of the layout.
        tokens_per_s: Throughput of the whole job.
    """
    if resource_cost.power is not None:
        yield "power", power_in_words(resource_cost.power)
    if (kwh := resource_cost.kwh_per_million_tokens(tokens_per_s)) is not None:
        yield "energy", f"{kwh:.3g} kWh per million tokens"
    if (price := resource_cost.price_per_million_tokens(tokens_per_s)) is not None:
        yield "price", f"${price:.3g} per million tokens, ${resource_cost.price_per_hour:,.2f} per hour"
    if (kg := resource_cost.co2_kg_per_million_tokens(tokens_per_s)) is not None:
        yield "CO2", f"{kg:.3g} kg per million tokens"
    yield "complexity", f"{resource_cost.complexity:g}, where plain replicas have 0"
    if resource_cost.robustness is not None:
        yield "robustness", f"{100 * resource_cost.robustness:.1f} % of its throughput under the fault trace"


def power_in_words(power: Power) -> str:
    """Return the total power and its parts: ``54.2 kW: accelerators 30.1 (modelled), hosts 24.1``."""
    parts = [("accelerators", power.accelerators_w), ("hosts", power.hosts_w)]
    parts += [("network", power.network_w), ("building", power.building_w)]
    how = "measured" if power.is_measured else "modelled"
    words = [f"{name} {_kilo(watts)}{f' ({how})' if name == 'accelerators' else ''}" for name, watts in parts if watts]
    return f"{_kilo(power.total_w)} kW: {', '.join(words)}"


def _kilo(watts: float) -> str:
    return f"{watts / 1000:.3g}"


PHASE_WORDS: Mapping[str, str] = {
    "forward_s": "forward",
    "backward_s": "backward",
    "all_reduce_s": "all-reduce",
    "all_gather_s": "all-gather",
    "reduce_scatter_s": "reduce-scatter",
    "all_to_all_s": "all-to-all",
    "send_receive_s": "send and receive",
    "pipeline_idle_s": "pipeline idle",
    "optimizer_s": "optimizer",
    "other_s": "anything else",
}
"""Words for each part of a ``Breakdown``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseShare:
    """A part of a measured step, with its time in seconds and its share (0 to 1) of the step."""

    name: str
    seconds: float
    share: float


def certainty(measured: Measurement) -> str:
    """Describe how precise a step time is: ``± 3 ms``, or how far its quartiles are apart if no interval is known."""
    if measured.step_time_interval_s is not None:
        return f"± {format_seconds(measured.step_time_interval_s)}"
    return f"quartiles {format_seconds(measured.step_time_spread_s)} apart"


def has_own_peak(mfu: float, precision_utilization: float | None) -> bool:
    """Return True if the layout's precision has a peak that differs from the reference peak of the MFU.

    Args:
        mfu: Share of the reference peak.
        precision_utilization: Share of the peak of the layout's own precision; None: not known.
    """
    if precision_utilization is None or not math.isfinite(precision_utilization):
        return False
    return not math.isclose(precision_utilization, mfu, rel_tol=0.01)


def phases(breakdown: Breakdown) -> tuple[PhaseShare, ...]:
    """Return the parts of a measured step that took any time, the longest first."""
    found = ((name, float(getattr(breakdown, field))) for field, name in PHASE_WORDS.items())
    shares = [
        PhaseShare(name=name, seconds=seconds, share=seconds / breakdown.step_s) for name, seconds in found if seconds
    ]
    return tuple(sorted(shares, key=lambda phase: -phase.seconds))


def facts(measured: Measurement) -> dict[str, str]:
    """Return facts about a measurement, such as its number of steps and its noise, as texts by name."""
    return dict(_facts(measured))


def _facts(measured: Measurement) -> Iterator[tuple[str, str]]:
    if measured.is_simulated:
        yield "simulated", "no trial ran; these are times of the cost model, with random noise (fixed seed)"
    yield "steps", _steps(measured)
    if measured.noise_floor is not None:
        yield "equal runs differ by", percent(measured.noise_floor)
    if not measured.is_simulated:
        yield "others used", f"{percent(measured.foreign_cpu_share)} of the machine's CPU time"
    if measured.breakdown_failure:
        yield "no breakdown", measured.breakdown_failure
    if measured.num_disturbed:
        yield "disturbed runs", f"{measured.num_disturbed}, thrown away"
    if measured.link_events:
        yield "links", "; ".join(map(event_sentence, measured.link_events))
    if measured.extrapolated_from:
        layers = " and ".join(map(str, measured.extrapolated_from))
        yield "extrapolated", f"from {layers} layers per stage, not measured on the whole model"
    if measured.overlapped_share is not None:
        yield "reduced under backward", f"{percent(measured.overlapped_share)} of the bytes of gradients"
    if measured.compile_s:
        yield "compilation", f"{format_seconds(measured.compile_s)}, before the measured steps"
    if measured.hfu > measured.mfu:
        yield "HFU", f"{100 * measured.hfu:.1f} %, with what is computed again"
    if measured.sync_payload_bytes is not None:
        yield "sent to other replicas", f"{format_bytes(measured.sync_payload_bytes)} of a rank per step"
    yield "peak memory per rank", _memory(measured)
    yield from _beside_time(measured)


def _beside_time(measured: Measurement) -> Iterator[tuple[str, str]]:
    if measured.power_w is not None:
        yield "power per accelerator", f"{measured.power_w:.0f} W"
    if measured.resource_cost is not None:
        yield from resource_cost_facts(measured.resource_cost, measured.tokens_per_s)


def _steps(measured: Measurement) -> str:
    """Return the numbers of measured steps and of warm-up steps; older records do not have the latter."""
    if measured.num_warmup_steps is None:
        return f"{measured.num_steps} measured"
    return f"{measured.num_steps} {measured.source} after {measured.num_warmup_steps} to warm up"


def _memory(measured: Measurement) -> str:
    if not measured.peak_bytes:
        return "not reported"
    allocated = f"{format_bytes(max(measured.peak_bytes))} allocated"
    if not measured.reserved_bytes:
        return allocated
    return f"{allocated}, {format_bytes(max(measured.reserved_bytes))} reserved"


def unranked_in_words(trial: Trial) -> str:
    """Describe why a measured trial has no rank; empty if it has one, or was not measured."""
    if trial.ran_measurement is None or trial.is_valid:
        return ""
    if trial.layout.is_emulated:
        return EMULATED
    if trial.gate is None and not trial.layout.needs_passed_gate:
        return "its values at full size are not estimated yet"
    if trial.gate is None:
        return (
            f"{gate_in_words(GateOutcome.NOT_GATED)}: a layout that sends less than its whole gradients, or clips them "
            "before the reduction, gets a rank only after it passed a convergence gate, and no gate ran for it"
        )
    return f"{gate_in_words(trial.gate.outcome)}: {trial.gate.detail}"
