"""What was measured of this machine, and what torch says without a device."""

from __future__ import annotations

from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autotuner.core.accelerator import SplitTimes
from autotuner.core.dry_run import DryRun, RankDryRun
from autotuner.core.profile import DeviceProfile
from autotuner.core.units import format_bytes, format_rate, format_seconds
from autotuner.report.terminal import plain_table
from autotuner.search.text.sentences import in_sentences, percent


def profile_view(profiles: list[DeviceProfile], *, details: bool = True) -> RenderableType:
    """The constants of each, and below them, where details are wanted, what the last one found part by part."""
    if not profiles:
        return Text("no profile is stored; `autotuner profile` takes one of this machine")
    table = plain_table("name", "device", "ranks", "measured on", *_SPEEDS)
    for one in profiles:
        table.add_row(*_constants(one))
    if not details:
        return table
    return Group(table, _kernels(profiles[-1]), _core(profiles[-1]), _messages(profiles[-1]))


_SPEEDS = ("fp32", "bf16", "memory\nbandwidth", "kernel\nlaunch", "link\nbandwidth", "link\nlatency")


def _constants(one: DeviceProfile) -> tuple[str, ...]:
    link, latency = one.link_bandwidth_bytes_per_s, one.link_latency_s
    return (
        one.name,
        one.device,
        str(one.num_ranks),
        datetime.fromtimestamp(one.measured_at, UTC).strftime("%Y-%m-%d %H:%M"),
        format_rate(one.fp32_flop_per_s, "FLOP/s"),
        format_rate(one.bf16_flop_per_s, "FLOP/s"),
        format_rate(one.memory_bandwidth_bytes_per_s, "B/s"),
        format_seconds(one.launch_s),
        "-" if link is None else format_rate(link, "B/s"),
        "-" if latency is None else format_seconds(latency),
    )


def _kernels(one: DeviceProfile) -> Table:
    table = plain_table("name", "precision", "of the peak")
    for gemm in one.gemm:
        table.add_row("products", str(gemm.precision), percent(gemm.peak_share))
    for core in one.attention:
        shares = f"{percent(core.forward_share)} forward, {percent(core.backward_share)} backward"
        table.add_row(f"attention {core.kernel}", str(core.precision), shares)
    return table


def _core(one: DeviceProfile) -> Table:
    """Show the time that a core spends on each micro-batch beside its products; empty for a GPU."""
    table = plain_table("beside the work itself", "forward", "backward")
    if one.core is None:
        return table
    rows = [("layer", one.core.layer), ("both ends of the model", one.core.ends)]
    rows += [(f"more, {_split(part)}", part.layer) for part in one.core.split]
    for name, times in rows:
        table.add_row(name, format_seconds(times.forward_s), format_seconds(times.backward_s))
    return table


def _split(part: SplitTimes) -> str:
    with_sequence = " with sequence parallelism" if part.sequence_parallel else ""
    return f"layer on {part.num_ranks} tensor ranks{with_sequence}"


def _messages(one: DeviceProfile) -> Table:
    table = plain_table("name", "ranks", "bytes", "time")
    for point in one.measurements.collectives:
        kind = point.kind.replace("_", "-")
        table.add_row(kind, str(point.num_ranks), format_bytes(point.num_bytes), format_seconds(point.seconds))
    return table


_PARTS = ("parameters", "gathered", "gradients", "optimizer", "activations")


def dry_run_view(answer: DryRun, *, title: str) -> RenderableType:
    """A column per rank, the fullest marked; what was not run, below."""
    table = plain_table("part", *(_name(each, answer) for each in answer.ranks))
    for part in _PARTS:
        table.add_row(part, *(format_bytes(getattr(each.held, f"{part}_bytes")) for each in answer.ranks))
    table.add_row(
        "peak", *(format_bytes(each.held.peak_bytes) for each in answer.ranks), style="bold", end_section=True
    )
    table.add_row("computation", *(format_rate(each.counts.flop, "FLOP") for each in answer.ranks))
    table.add_row("memory traffic", *(format_bytes(each.counts.moved_bytes) for each in answer.ranks))
    table.add_row("operations", *(f"{each.counts.num_operations:,.0f}" for each in answer.ranks))
    for kind in _kinds(answer):
        table.add_row(kind.replace("_", "-"), *(_collective(each, kind) for each in answer.ranks))
    return Group(Text(title, style="bold"), table, *(Text(note, style="dim") for note in _notes(answer)))


def _name(each: RankDryRun, answer: DryRun) -> str:
    is_fullest = len(answer.ranks) > 1 and each is answer.fullest
    return f"rank {each.rank}{', fullest' if is_fullest else ''}"


def _kinds(answer: DryRun) -> list[str]:
    return sorted({collective.kind for each in answer.ranks for collective in each.counts.collectives})


def _collective(each: RankDryRun, kind: str) -> str:
    found = next((c for c in each.counts.collectives if c.kind == kind), None)
    return "-" if found is None else f"{found.num_calls:,.0f} x, {format_bytes(found.num_bytes)}"


def _notes(answer: DryRun) -> list[str]:
    notes = ["Bytes of tensors at their peak, counted in a run without values; nothing was measured."]
    for what, sizes in (("layers per stage", answer.layers_run), ("micro-batches", answer.micro_batches_run)):
        if sizes:
            notes.append(f"Ran {sizes[0]} and {sizes[1]} {what} and went on in a straight line; --exact runs them all.")
    return notes + [in_sentences([note]) for note in answer.notes]
