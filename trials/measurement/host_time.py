"""Where a step's time went on a rank whose computing thread is the host's: a CPU with gloo."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from trials.measurement.collectives import communication_part
from trials.measurement.phases import Moments
from trials.measurement.recording import FORWARD, UNNAMED_WAIT, WAIT, Event
from trials.measurement.timeline import Span, divided, joined


def host_time_ns(events: Sequence[Event], *, pipelined: bool) -> Counter[str]:
    """Nanoseconds of the step by part of a ``Breakdown``.

    A moment in which the main thread starts a collective or waits for one belongs to that collective. What is left
    is divided by the nearest of: a backward pass, a stage's forward pass, an operation outside of both, a collective
    that gloo carries out while no operation runs (who waits for one in C++ shows nowhere else).
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
    """What the main thread spends in calls and waits of collectives; a nameless wait is for the last one called."""
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
    """Operations that no other operation called: the loss before the last backward pass, the optimizer after it."""
    until_ns = 0
    for event in main:
        if event.start_ns >= until_ns and not event.name.startswith(("trial", "PP", "Forward", "Backward")):
            until_ns = event.end_ns
            is_pass = event.start_ns < moments.last_backward_ns
            if event.end_ns <= moments.end_ns:
                yield Span(event.start_ns, event.end_ns, "forward_s" if is_pass else "optimizer_s")


def _carried_out(events: Sequence[Event], moments: Moments) -> Iterator[Span]:
    """Collectives on gloo's threads until the gradients are complete."""
    for event in events:
        part = communication_part(event.name) if event.name.startswith("gloo:") else None
        if part and event.start_ns < moments.complete_ns:
            yield Span(event.start_ns, min(event.end_ns, moments.complete_ns), part)
