"""What layouts take beside time, in words: energy, price and emissions of tokens, and what makes a layout complex."""

from __future__ import annotations

from collections.abc import Iterator

from autotuner.core.complexity import burdens_of
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.measurement import Footprint, Power

_S_PER_HOUR = 3600.0


def kwh_per_million_tokens(footprint: Footprint | None, tokens_per_s: float) -> float | None:
    """Energy of a million tokens; None where no power is known."""
    if footprint is None or footprint.power is None:
        return None
    return _of_a_million(footprint.power.total_w / 1000, tokens_per_s)


def price_per_million_tokens(footprint: Footprint | None, tokens_per_s: float) -> float | None:
    """US dollars of a million tokens; None where no price is known."""
    return _of_a_million(footprint.price_per_hour, tokens_per_s) if footprint and footprint.price_per_hour else None


def co2_kg_per_million_tokens(footprint: Footprint | None, tokens_per_s: float) -> float | None:
    """Emissions of a million tokens; None where the energy's mix is not known."""
    return _of_a_million(footprint.co2_kg_per_hour, tokens_per_s) if footprint and footprint.co2_kg_per_hour else None


def _of_a_million(per_hour: float, tokens_per_s: float) -> float:
    return 1e6 * per_hour / (tokens_per_s * _S_PER_HOUR)


def footprint_facts(footprint: Footprint, tokens_per_s: float) -> Iterator[tuple[str, str]]:
    """What is known, by its name, of a whole job that trains so many tokens per second."""
    if footprint.power is not None:
        yield "power", power_in_words(footprint.power)
    if (kwh := kwh_per_million_tokens(footprint, tokens_per_s)) is not None:
        yield "energy", f"{kwh:.3g} kWh per million tokens"
    if (price := price_per_million_tokens(footprint, tokens_per_s)) is not None:
        yield "price", f"${price:.3g} per million tokens, ${footprint.price_per_hour:,.2f} per hour"
    if (kg := co2_kg_per_million_tokens(footprint, tokens_per_s)) is not None:
        yield "CO2", f"{kg:.3g} kg per million tokens"
    yield "complexity", f"{footprint.complexity:g}, where plain replicas have 0"
    if footprint.robustness is not None:
        yield "robustness", f"{100 * footprint.robustness:.1f} % of its throughput under the fault trace"


def power_in_words(power: Power) -> str:
    """The whole draw, and of what: ``54.2 kW: accelerators 30.1 (modelled), hosts 24.1``."""
    parts = [("accelerators", power.accelerators_w), ("hosts", power.hosts_w)]
    parts += [("network", power.network_w), ("building", power.building_w)]
    how = "measured" if power.is_measured else "modelled"
    words = [f"{name} {_kilo(watts)}{f' ({how})' if name == 'accelerators' else ''}" for name, watts in parts if watts]
    return f"{_kilo(power.total_w)} kW: {', '.join(words)}"


def _kilo(watts: float) -> str:
    return f"{watts / 1000:.3g}"


def complexity_in_words(layout: Layout) -> str:
    """The number with what makes it up: ``5: tensor 2, sharding 1, compiled 2``; of a plain layout ``0: plain``."""
    burdens = burdens_of(layout)
    total = sum(burden.weight for burden in burdens)
    words = ", ".join(f"{OPTIONS[burden.option].label} {burden.weight:g}" for burden in burdens)
    return f"{total:g}: {words or 'plain replicas'}"
