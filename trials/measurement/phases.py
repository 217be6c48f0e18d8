"""The moments that divide a recorded step: when it began, ran backward, had its gradients, and ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trials.measurement.recording import Event
from trials.measurement.stopwatch import MARK
from trials.measurement.timeline import Span

BACKWARD = "autograd::engine::evaluate_function: "
"""What autograd's engine calls a node of the graph that it runs; recomputation happens inside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """Moments of a step on the host's clock.

    Attributes:
        thread: The one that runs the step.
        backward: Nodes of the graph, on whichever thread autograd ran them.
        last_backward_ns: The last backward pass is over; the optimizer's work begins, with clipping and what completes
            gradients.
        complete_ns: The gradients are complete.
        end_ns: The parameters are updated; what follows tells every rank the loss.
    """

    thread: int
    window: Span
    backward: tuple[Span, ...]
    last_backward_ns: int
    complete_ns: int
    end_ns: int

    @classmethod
    def of(cls, events: Sequence[Event]) -> Moments:
        """Read them from a recording with the marks of one step."""
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
        """The step begins."""
        return self.window.start_ns
