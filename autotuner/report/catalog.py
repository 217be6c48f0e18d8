"""The reports of the catalog: accelerators and models, training software, and the networks that clusters name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autotuner.catalog.networks import NetworkPreset
from autotuner.catalog.software import StackProfile
from autotuner.core.accelerator import Accelerator
from autotuner.core.model import TransformerSpec
from autotuner.core.stack import Stack
from autotuner.report.report import (
    Block,
    Cell,
    Column,
    Lines,
    Quantity,
    Quiet,
    Report,
    Section,
    Strong,
    Table,
)


# ------------------------------------------------------------------ what can be named
def catalog_report(
    accelerators: Sequence[Accelerator], models: Sequence[TransformerSpec], stacks: Sequence[Stack]
) -> Report:
    """Return the report of the accelerators, models and training software that commands accept by name."""
    names = Lines(items=(", ".join(one.name for one in stacks),))
    return Report(
        headline="Catalog",
        sections=(
            Section(title="Accelerators", blocks=(_accelerators(accelerators),)),
            Section(title="Models", blocks=(_models(models),)),
            Section(title="Training software", blocks=(names,)),
        ),
    )


def _accelerators(accelerators: Sequence[Accelerator]) -> Table:
    rates = ("memory", "bandwidth", "fp32", "bf16", "fp8", "fp4")
    columns = (
        Column("name", is_number=False),
        *map(Column, rates),
        Column("source", is_number=False, may_wrap=True, is_minor=True),
    )
    return Table(columns=columns, rows=[tuple(_cells_of(one)) for one in accelerators])


def _cells_of(one: Accelerator) -> Iterator[Cell]:
    yield one.name
    yield Quantity(value=one.memory_bytes, unit="bytes")
    yield Quantity(value=one.memory_bandwidth_bytes_per_s, unit="bytes/s")
    for peak in (one.fp32_flop_per_s, one.bf16_flop_per_s, one.fp8_flop_per_s, one.fp4_flop_per_s):
        yield Quantity(value=peak or None, unit="FLOP/s")
    yield one.peak_source


def _models(models: Sequence[TransformerSpec]) -> Table:
    counts = ("parameters", "layers", "hidden", "heads", "KV heads", "FFN", "vocabulary")
    rows = [tuple(_sizes(one)) for one in models]
    return Table(columns=(Column("name", is_number=False), *map(Column, counts)), rows=rows)


def _sizes(one: TransformerSpec) -> Iterator[Cell]:
    yield one.name
    yield Quantity(value=one.num_parameters, unit="parameters")
    sizes = (one.num_layers, one.hidden_size, one.num_heads, one.num_kv_heads, one.ffn_size, one.vocab_size)
    yield from (Quantity(value=size, unit="count") for size in sizes)


# ------------------------------------------------------------------ training software
def stacks_report(profiles: Sequence[StackProfile]) -> Report:
    """Return the report of the training software that predictions know, with its versions and its error on new sources.

    The report of support has the measured runs that it was fitted to.
    """
    sections = tuple(Section(title=one.name, blocks=tuple(_profile(one))) for one in profiles)
    return Report(headline="Training software", sections=sections)


def _profile(one: StackProfile) -> Iterator[Block]:
    about = "; ".join(word for word in (one.framework, one.versions) if word)
    yield Lines(items=((about, Quiet(f"({one.date})")) if one.date else about,))
    if one.left_out_error is not None:
        error = Quantity(value=one.left_out_error, unit="share")
        yield Lines(items=(("Median error", error, "on runs whose source was left out of the fit."),))


# ------------------------------------------------------------------ networks
def networks_report(presets: Sequence[NetworkPreset]) -> Report:
    """Return the report of the networks that a cluster can name, with the sources of their numbers."""
    return Report(headline="Networks", sections=[Section(blocks=tuple(_network(one))) for one in presets])


def _network(one: NetworkPreset) -> Iterator[Block]:
    yield Lines(items=((Strong(one.name), f": {one.meaning}."),))
    yield Lines(items=(f"{one.source}, {one.date}",), is_quiet=True)
