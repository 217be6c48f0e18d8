"""Computes a ``Breakdown`` from recordings: how a step's time divides, on a host or on a GPU."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Literal, NamedTuple

import torch

from autotuner.core.layout import Layout
from autotuner.core.measurement import Breakdown
from autotuner.core.measuring import mean_over_period
from autotuner.core.stages import steps_per_exchange
from autotuner.training.communicator import WAIT
from autotuner.trials.measurement.measure import MARK
from autotuner.trials.measurement.recording import FORWARD, UNNAMED_WAIT, Event, Recording

# Time divided among what happened in it.


class Span(NamedTuple):
    """A time interval in which one kind of work (``part``) took place, in nanoseconds of one clock."""

    start_ns: int
    end_ns: int
    part: str


def divided(window: Span, spans: Iterable[Span]) -> Counter[str]:
    """Divide the nanoseconds of a window among the parts (kinds of work), and return the nanoseconds of each part.

    Each moment belongs to the first span in the list that covers it. Moments that no span covers belong to the part of
    the window itself. So the parts always sum to the length of the window.
    """
    free: list[tuple[int, int]] = [(window.start_ns, window.end_ns)]
    parts: Counter[str] = Counter()
    for span in spans:
        parts[span.part] += _take(free, span)
    parts[window.part] += sum(end - start for start, end in free)
    return parts


def joined(spans: Sequence[Span], breaks: Sequence[int]) -> list[Span]:
    """Sort spans by time, and join each span with the next one unless a break lies between them.

    A joined span also covers the gap between its two spans.

    Args:
        spans: Time intervals of one kind of work.
        breaks: Moments in nanoseconds. A span that ends before such a moment and a span that starts after it stay
            separate.
    """
    closed: list[Span] = []
    breaks = sorted(breaks)
    for span in sorted(spans):
        if closed and bisect_right(breaks, closed[-1].end_ns) == bisect_right(breaks, span.start_ns):
            closed[-1] = closed[-1]._replace(end_ns=max(closed[-1].end_ns, span.end_ns))
        else:
            closed.append(span)
    return closed


def _take(free: list[tuple[int, int]], span: Span) -> int:
    """Remove a span from the sorted free intervals, and return how many nanoseconds were free."""
    taken, index = 0, max(0, bisect_right(free, (span.start_ns, span.start_ns)) - 1)
    while index < len(free) and free[index][0] < span.end_ns:
        start, end = free[index]
        from_ns, to_ns = max(start, span.start_ns), min(end, span.end_ns)
        if from_ns >= to_ns:
            index += 1
            continue
        taken += to_ns - from_ns
        rest = [piece for piece in ((start, from_ns), (to_ns, end)) if piece[0] < piece[1]]
        free[index : index + 1] = rest
        index += len(rest)
    return taken


# The moments that divide a recorded step: when it began, ran backward, had its gradients, and ended.

BACKWARD = "autograd::engine::evaluate_function: "
"""Prefix of autograd's name for a node of the graph that it runs; recomputation happens inside such nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """The moments that divide a recorded step: its start, last backward pass, complete gradients and end.

    They are in nanoseconds of the host's clock.
    """

    thread: int
    """Id of the thread that runs the step."""
    window: Span
    backward: tuple[Span, ...]
    """Spans of the graph's nodes, on any thread of autograd."""
    last_backward_ns: int
    """Time at which the last backward pass ends. The optimizer's work follows, with clipping and the last
    reductions."""
    complete_ns: int
    """Time at which the gradients are complete."""
    end_ns: int
    """Time at which the parameters are updated. After this, every rank is told the loss."""

    @classmethod
    def of(cls, events: Sequence[Event]) -> Moments:
        """Return the moments of a step (such as the end of its last backward pass), found in its recorded events.

        The step must have run with a ``Stopwatch``, whose marks are among the events.
        """
        marks = {event.name.removeprefix(MARK): event for event in events if event.name.startswith(MARK)}
        window = Span(marks["begin"].end_ns, marks["done"].start_ns, "other_s")
        nodes = [event for event in events if event.name.startswith(BACKWARD)]
        complete_ns = marks["gradients complete"].start_ns
        return cls(
            thread=marks["begin"].thread,
            window=window,
            backward=tuple(Span(node.start_ns, node.end_ns, "backward_s") for node in nodes),
            last_backward_ns=max((node.end_ns for node in nodes), default=complete_ns),
            complete_ns=complete_ns,
            end_ns=marks["end"].end_ns,
        )

    @property
    def start_ns(self) -> int:
        """The moment at which the step begins."""
        return self.window.start_ns


# Which part of a ``Breakdown`` a collective belongs to, by any of the names it goes by.

Communication = Literal["all_reduce_s", "all_gather_s", "reduce_scatter_s", "all_to_all_s", "send_receive_s"]

_PARTS: tuple[tuple[str, Communication], ...] = (
    ("reducescatter", "reduce_scatter_s"),
    ("allgather", "all_gather_s"),
    ("alltoall", "all_to_all_s"),
    ("sendrecv", "send_receive_s"),
    ("send", "send_receive_s"),
    ("recv", "send_receive_s"),
    ("broadcast", "all_gather_s"),  # an optimizer that is sharded tells its parameters to the others
    ("gather", "all_gather_s"),
    ("scatter", "all_gather_s"),
    ("reduce", "all_reduce_s"),
    ("barrier", "all_reduce_s"),
)
"""Parts of collectives' names without underscores, each with its field of ``Breakdown``; longer words come first."""


def communication_part(name: str) -> Communication | None:
    """Return the field of a ``Breakdown`` to which the time of a collective operation or kernel belongs, by its name.

    For example, ``all_gather_s`` for ``c10d::_allgather_base_``, ``gloo:all_gather`` and
    ``ncclDevKernel_AllGather_RING_LL``. It is None if the name does not belong to a collective.
    """
    bare = name.replace("_", "").lower()
    return next((part for word, part in _PARTS if word in bare), None)


# The breakdown of a step on a rank whose computing thread is the host's: a CPU with gloo.


def host_time_ns(events: Sequence[Event], *, pipelined: bool) -> Counter[str]:
    """Return the nanoseconds of a step on a CPU for each part of a ``Breakdown``.

    If the main thread starts a collective or waits for it at a moment, the moment belongs to this collective. Any other
    moment belongs to the first item of this list that covers it:

    - A backward pass.
    - The forward pass of a stage.
    - Another operation of the main thread.
    - A collective that gloo carries out while no operation runs. (A wait for it in C++ is not visible otherwise.)

    Args:
        events: The recorded events of the step.
        pipelined: True if the layout has pipeline stages.
    """
    moments = Moments.of(events)
    main = [event for event in events if event.thread == moments.thread and event.end_ns > moments.start_ns]
    main.sort()
    spans = [
        *_communication(main, moments, pipelined=pipelined),
        *joined(moments.backward, [event.start_ns for event in main if event.name == FORWARD]),
        *(Span(event.start_ns, event.end_ns, "forward_s") for event in main if event.name == FORWARD),
        *_outermost(main, moments),
        *_carried_out(events, moments),
        Span(moments.last_backward_ns, moments.end_ns, "optimizer_s"),
    ]
    return divided(moments.window, spans)


def _communication(main: Sequence[Event], moments: Moments, *, pipelined: bool) -> Iterator[Span]:
    """Yield the main thread's calls of collectives and its waits; a wait without a name belongs to the last call."""
    latest = "all_reduce_s"
    for event in main:
        if event.name.startswith("c10d::"):
            part = latest = communication_part(event.name) or latest
        elif event.name.startswith(WAIT):
            part = communication_part(event.name.removeprefix(WAIT)) or latest
        elif event.name == UNNAMED_WAIT:
            part = latest
        else:
            continue
        awaits_neighbour = event.name == WAIT + "recv" or event.start_ns >= moments.end_ns
        yield Span(event.start_ns, event.end_ns, "pipeline_idle_s" if pipelined and awaits_neighbour else part)


def _outermost(main: Sequence[Event], moments: Moments) -> Iterator[Span]:
    """Yield operations that no other called: the loss before the last backward pass, the optimizer after it."""
    until_ns = 0
    for event in main:
        if event.start_ns >= until_ns and not event.name.startswith(("trial", "PP", "Forward", "Backward")):
            until_ns = event.end_ns
            is_pass = event.start_ns < moments.last_backward_ns
            if event.end_ns <= moments.end_ns:
                yield Span(event.start_ns, event.end_ns, "forward_s" if is_pass else "optimizer_s")


def _carried_out(events: Sequence[Event], moments: Moments) -> Iterator[Span]:
    """Yield the collectives on gloo's threads until the gradients are complete."""
    for event in events:
        part = communication_part(event.name) if event.name.startswith("gloo:") else None
        if part and event.start_ns < moments.complete_ns:
            yield Span(event.start_ns, min(event.end_ns, moments.complete_ns), part)


# The breakdown of a step on a rank that computes on a GPU: by the kernels of its timeline.

_CALLS = ("c10d::", "_c10d_functional::", "nccl:")
"""Prefixes of operations that start a collective."""


def device_time_ns(host: Sequence[Event], device: Sequence[Event], *, pipelined: bool) -> Counter[str]:
    """Return the nanoseconds of a step on a GPU for each part of a ``Breakdown``.

    A moment in which a kernel computes belongs to the phase that launched the kernel. A moment in which only NCCL
    kernels run belongs to their collective, because this communication is not hidden. While no kernel runs, the GPU
    waits for the host; this time belongs to no part. In a pipeline, the NCCL kernel of a send or receive also runs
    while it waits for the other rank. Therefore only the time of the shortest such kernel counts as communication; the
    rest counts as waiting.

    Args:
        host: The recorded operations of the host.
        device: The recorded kernels of the device.
        pipelined: True if the layout has pipeline stages.
    """
    moments, origins = Moments.of(host), _Origins(host)
    computing: list[Span] = []
    communicating: list[Span] = []
    for kernel in sorted(device):
        if kernel.name.startswith("nccl"):
            part = _collective(kernel, origins)
            if pipelined and origins.start_ns(kernel) >= moments.end_ns:
                part = "pipeline_idle_s"
            communicating.append(Span(kernel.start_ns, kernel.end_ns, part))
        else:
            computing.append(Span(kernel.start_ns, kernel.end_ns, _phase(kernel, origins, moments)))
    spans = [*computing, *(_with_waits(communicating) if pipelined else communicating)]
    return divided(moments.window, spans)


class _Origins:
    """Finds the host operation that launched each kernel."""

    def __init__(self, host: Sequence[Event]) -> None:
        self._operations = {event.correlation: event for event in host if event.correlation}
        self._calls = _Nest([event for event in host if event.name.startswith(_CALLS)])
        self._nodes = _Nest([event for event in host if event.name.startswith("autograd::engine::")])

    def start_ns(self, kernel: Event) -> int:
        """Return the start of the operation that launched the kernel; 0 if it is unknown."""
        operation = self._operations.get(kernel.correlation)
        return operation.start_ns if operation else 0

    def is_known(self, kernel: Event) -> bool:
        """Return True if the operation that launched the kernel is known."""
        return kernel.correlation in self._operations

    def is_backward(self, kernel: Event) -> bool:
        """Return True if autograd's engine launched the kernel."""
        operation = self._operations.get(kernel.correlation)
        return operation is not None and self._nodes.around(operation) is not None

    def call(self, kernel: Event) -> str | None:
        """Return the name of the collective call that launched the kernel; None if there is none."""
        operation = self._operations.get(kernel.correlation)
        call = self._calls.around(operation) if operation else None
        return call.name if call else None


class _Nest:
    """Finds the event on the same thread that encloses another event."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._outermost: dict[int, list[Event]] = defaultdict(list)
        for event in sorted(events):
            known = self._outermost[event.thread]
            if not known or event.start_ns >= known[-1].end_ns:
                known.append(event)

    def around(self, event: Event) -> Event | None:
        """Return the outermost event during which this event begins; None if there is none."""
        known = self._outermost.get(event.thread, [])
        index = bisect_right(known, event.start_ns, key=lambda other: other.start_ns) - 1
        return known[index] if index >= 0 and event.start_ns < known[index].end_ns else None


def _collective(kernel: Event, origins: _Origins) -> str:
    """Return the collective's name from its call if that is known.

    NCCL has one kernel for all-to-all, sends and receives.
    """
    return communication_part(origins.call(kernel) or "") or communication_part(kernel.name) or "all_reduce_s"


def _phase(kernel: Event, origins: _Origins, moments: Moments) -> str:
    if not origins.is_known(kernel):
        return "other_s"
    if origins.is_backward(kernel):
        return "backward_s"
    return "optimizer_s" if origins.start_ns(kernel) >= moments.last_backward_ns else "forward_s"


def _with_waits(communicating: Sequence[Span]) -> Iterator[Span]:
    """Split each send or receive into a wait and the transfer at its end."""
    exchanges = [span.end_ns - span.start_ns for span in communicating if span.part == "send_receive_s"]
    for span in communicating:
        if span.part != "send_receive_s":
            yield span
            continue
        transfer_ns = span.end_ns - min(exchanges)
        yield Span(transfer_ns, span.end_ns, "send_receive_s")
        yield Span(span.start_ns, transfer_ns, "pipeline_idle_s")


_BREAKDOWN_PARTS = tuple(field.name for field in fields(Breakdown) if field.name != "rank")


def breakdown_of(recordings: Mapping[int, Recording], layout: Layout, device: torch.device, *, rank: int) -> Breakdown:
    """Return the breakdown of this rank's time, averaged over its recorded steps.

    Args:
        recordings: Recordings of steps by the number of the step; at least one.
        layout: The layout of the trial.
        device: The device of this rank.
        rank: The number of this rank.
    """
    pipelined = layout.pipeline_parallel_degree > 1
    steps = [
        device_time_ns(recording.host, recording.device, pipelined=pipelined)
        if device.type == "cuda"
        else host_time_ns(recording.host, pipelined=pipelined)
        for recording in recordings.values()
    ]
    numbers, period = list(recordings), steps_per_exchange(layout)
    parts = {part: mean_over_period(numbers, [step[part] for step in steps], period) / 1e9 for part in _BREAKDOWN_PARTS}
    return Breakdown(rank=rank, **parts)


def longest_computing(breakdowns: Sequence[Breakdown]) -> Breakdown:
    """Return the breakdown of the rank that computes longest, since the other ranks wait for that rank."""
    return max(breakdowns, key=lambda b: b.forward_s + b.backward_s + b.optimizer_s)
