"""The reports of this machine: its measured speed, and torch's dry run of a layout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autotuner.core.accelerator import SplitTimes
from autotuner.core.dry_run import DryRun, RankDryRun
from autotuner.core.profile import DeviceProfile
from autotuner.report.charts import Unit
from autotuner.report.report import (
    Block,
    Cells,
    Column,
    Lines,
    Moment,
    Quantity,
    Report,
    Section,
    Strong,
    Table,
    measured,
)
from autotuner.report.words import plain, sentence


# ------------------------------------------------------------------ profiles
def profiles_report(profiles: Sequence[DeviceProfile], *, details: bool = True) -> Report:
    """Return the report of device profiles: the measured constants of each profile, and all parts of the last profile.

    Args:
        profiles: The profiles, in the order of the table.
        details: True if the parts of the last profile are shown.
    """
    columns = (
        Column("name", is_number=False),
        Column("device", is_number=False),
        Column("ranks"),
        Column("measured on", is_number=False),
        *map(Column, ("fp32", "bf16", "memory\nbandwidth", "kernel\nlaunch", "link\nbandwidth", "link\nlatency")),
    )
    none = "no profile is stored; `autotuner profile` measures this machine and stores one"
    constants = Table(columns=columns, rows=[tuple(_constants(one)) for one in profiles], if_empty=none)
    sections = [Section(blocks=(constants,))]
    sections += _parts(profiles[-1]) if details and profiles else []
    return Report(headline="Profiles", sections=sections)


def _constants(one: DeviceProfile) -> Iterator[Cells]:
    yield one.name
    yield one.device
    yield Quantity(value=one.num_ranks, unit="count")
    yield Moment(one.measured_at)
    yield measured(one.fp32_flop_per_s, "FLOP/s")
    yield measured(one.bf16_flop_per_s, "FLOP/s")
    yield measured(one.memory_bandwidth_bytes_per_s, "bytes/s")
    yield measured(one.launch_s, "s")
    yield measured(one.link_bandwidth_bytes_per_s, "bytes/s")
    yield measured(one.link_latency_s, "s")


def _parts(one: DeviceProfile) -> Iterator[Section]:
    rows: list[tuple[Cells, ...]] = [
        ("products", str(gemm.precision), measured(gemm.peak_share, "share"), None) for gemm in one.gemm
    ]
    rows += [
        (
            f"attention {core.kernel}",
            str(core.precision),
            measured(core.forward_share, "share"),
            measured(core.backward_share, "share"),
        )
        for core in one.attention
    ]
    names = (Column("name", is_number=False), Column("precision", is_number=False))
    shares = (*names, Column("of the peak"), Column("backward"))
    yield Section(title="Kernels", blocks=(Table(columns=shares, rows=rows),))
    if one.core is not None:
        yield Section(title="Besides the work itself", blocks=(_core(one),))
    messages = (Column("name", is_number=False), Column("ranks"), Column("bytes"), Column("time"))
    sent = [
        (
            plain(point.kind).replace(" ", "-"),
            Quantity(value=point.num_ranks, unit="count"),
            Quantity(value=point.num_bytes, unit="bytes"),
            measured(point.seconds, "s"),
        )
        for point in one.measurements.collectives
    ]
    yield Section(title="Messages", blocks=(Table(columns=messages, rows=sent),))


def _core(one: DeviceProfile) -> Table:
    """Return a table of the time that a core spends on each micro-batch outside matrix products."""
    assert one.core is not None, "the device is a CPU"
    parts = [("layer", one.core.layer), ("both ends of the model", one.core.ends)]
    parts += [(f"more, {_split(part)}", part.layer) for part in one.core.split]
    columns = (Column("part", is_number=False), Column("forward"), Column("backward"))
    rows = [(name, measured(times.forward_s, "s"), measured(times.backward_s, "s")) for name, times in parts]
    return Table(columns=columns, rows=rows)


def _split(part: SplitTimes) -> str:
    with_sequence = " with sequence parallelism" if part.sequence_parallel else ""
    return f"layer on {part.num_ranks} tensor ranks{with_sequence}"


# ------------------------------------------------------------------ dry runs
_HELD = ("parameters", "gathered", "gradients", "optimizer", "activations")


def dry_run_report(found: DryRun, headline: str) -> Report:
    """Return the report of a dry run (a training step on tensors without values): memory and computation of each rank.

    It also names the parts that were not run, and marks the rank that needs the most memory.

    Args:
        found: Counts of the dry run.
        headline: The job and the layout, in words.
    """
    columns = (Column("part", is_number=False), *(Column(_name(each, found)) for each in found.ranks))
    blocks: tuple[Block, ...] = (
        Table(columns=columns, rows=tuple(_rows(found))),
        Lines(items=tuple(_notes(found)), is_quiet=True),
    )
    return Report(headline=headline, sections=(Section(blocks=blocks),))


def _rows(found: DryRun) -> Iterator[tuple[Cells, ...]]:
    for part in _HELD:
        yield part, *(_counted(getattr(each.held, f"{part}_bytes"), "bytes") for each in found.ranks)
    yield Strong("peak"), *(_counted(each.held.peak_bytes, "bytes") for each in found.ranks)
    yield "computation", *(_counted(each.counts.flop, "FLOP") for each in found.ranks)
    yield "memory traffic", *(_counted(each.counts.moved_bytes, "bytes") for each in found.ranks)
    yield "operations", *(_counted(each.counts.num_operations, "count") for each in found.ranks)
    for kind in sorted({collective.kind for each in found.ranks for collective in each.counts.collectives}):
        yield kind.replace("_", "-"), *(_collective(each, kind) for each in found.ranks)


def _counted(value: float, unit: Unit) -> Quantity:
    return Quantity(value=value, unit=unit, source="predicted")


def _name(each: RankDryRun, found: DryRun) -> str:
    is_fullest = len(found.ranks) > 1 and each is found.fullest
    return f"rank {each.rank}{', fullest' if is_fullest else ''}"


def _collective(each: RankDryRun, kind: str) -> Cells:
    one = next((one for one in each.counts.collectives if one.kind == kind), None)
    return None if one is None else (f"{one.num_calls:,.0f} x", _counted(one.num_bytes, "bytes"))


def _notes(found: DryRun) -> Iterator[str]:
    yield "Peak bytes of tensors, counted in a dry run without tensor values; nothing was measured."
    for what, sizes in (("layers per stage", found.layers_run), ("micro-batches", found.micro_batches_run)):
        if sizes:
            yield (
                f"The dry run had {sizes[0]} and {sizes[1]} {what} and was extrapolated linearly; --exact runs all "
                "of them."
            )
    yield from map(sentence, found.notes)
