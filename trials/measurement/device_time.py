"""Where a step's time went on a rank that computes on a GPU: by the kernels of its timeline."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from trials.measurement.collectives import communication_part
from trials.measurement.phases import Moments
from trials.measurement.recording import Event
from trials.measurement.timeline import Span, divided

_CALLS = ("c10d::", "_c10d_functional::", "nccl:")
"""Names of operations that start a collective begin so."""


def device_time_ns(host: Sequence[Event], device: Sequence[Event], *, pipelined: bool) -> Counter[str]:
    """Nanoseconds of the step by part of a ``Breakdown``.

    A moment in which any kernel computes belongs to the phase that launched it; one in which only NCCL's kernels run
    belongs to their collective: it is exposed. A GPU without a kernel waits for the host, which is none of the parts.
    NCCL's kernel of a send or receive runs while it waits for the other rank. In a pipeline, what such kernels take
    beyond the shortest of them is that wait.
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
    """Which operations of the host launched a kernel."""

    def __init__(self, host: Sequence[Event]) -> None:
        self._operations = {event.correlation: event for event in host if event.correlation}
        self._calls = _Nest([event for event in host if event.name.startswith(_CALLS)])
        self._nodes = _Nest([event for event in host if event.name.startswith("autograd::engine::")])

    def start_ns(self, kernel: Event) -> int:
        """When the operation that launched it began; 0 where that is not known."""
        operation = self._operations.get(kernel.correlation)
        return operation.start_ns if operation else 0

    def is_known(self, kernel: Event) -> bool:
        """Whether it is known what launched it."""
        return kernel.correlation in self._operations

    def is_backward(self, kernel: Event) -> bool:
        """Whether autograd's engine launched it."""
        operation = self._operations.get(kernel.correlation)
        return operation is not None and self._nodes.around(operation) is not None

    def call(self, kernel: Event) -> str | None:
        """The name of the collective's call around the launch."""
        operation = self._operations.get(kernel.correlation)
        call = self._calls.around(operation) if operation else None
        return call.name if call else None


class _Nest:
    """Finds the event around another on the same thread."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._outermost: dict[int, list[Event]] = defaultdict(list)
        for event in sorted(events):
            known = self._outermost[event.thread]
            if not known or event.start_ns >= known[-1].end_ns:
                known.append(event)

    def around(self, event: Event) -> Event | None:
        """The outermost one in which the event begins."""
        known = self._outermost.get(event.thread, [])
        index = bisect_right(known, event.start_ns, key=lambda other: other.start_ns) - 1
        return known[index] if index >= 0 and event.start_ns < known[index].end_ns else None


def _collective(kernel: Event, origins: _Origins) -> str:
    """By the call, where it is known: NCCL's kernel of an all-to-all is that of sends and receives."""
    return communication_part(origins.call(kernel) or "") or communication_part(kernel.name) or "all_reduce_s"


def _phase(kernel: Event, origins: _Origins, moments: Moments) -> str:
    if not origins.is_known(kernel):
        return "other_s"
    if origins.is_backward(kernel):
        return "backward_s"
    return "optimizer_s" if origins.start_ns(kernel) >= moments.last_backward_ns else "forward_s"


def _with_waits(communicating: Sequence[Span]) -> Iterator[Span]:
    """Sends and receives as the transfer at their end and the wait before it."""
    exchanges = [span.end_ns - span.start_ns for span in communicating if span.part == "send_receive_s"]
    for span in communicating:
        if span.part != "send_receive_s":
            yield span
            continue
        transfer_ns = span.end_ns - min(exchanges)
        yield Span(transfer_ns, span.end_ns, "send_receive_s")
        yield Span(span.start_ns, transfer_ns, "pipeline_idle_s")
