"""Names pieces of work, such as a sweep, a trial or a delivery, in logs and traces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from typing import TypeVar

import structlog
from opentelemetry import trace

Answer = TypeVar("Answer")

_provider: trace.TracerProvider | None = None
"""Tracer provider of this process; None if it does not trace."""


@contextmanager
def working_on(name: str, **ids: str) -> Iterator[trace.Span]:
    """Run the block as one span of a trace; the span and all log lines of the block carry the given ids."""
    tracer = trace.get_tracer("autotuner", tracer_provider=_provider or trace.NoOpTracerProvider())
    attributes = {f"autotuner.{key}": value for key, value in ids.items()}
    with (
        structlog.contextvars.bound_contextvars(**ids),
        tracer.start_as_current_span(name, attributes=attributes) as span,
    ):
        yield span


def carried(work: Callable[[], Answer]) -> Callable[[], Answer]:
    """Bind a function to the current context, so that it keeps the trace and the log ids in another thread."""
    return partial(copy_context().run, work)


# ---------------------------------------------------------------------- where spans go
def tracer_provider() -> trace.TracerProvider | None:
    """Return the OpenTelemetry provider that receives this process's spans; None if the process does not trace."""
    return _provider


@contextmanager
def traced_by(provider: trace.TracerProvider) -> Iterator[None]:
    """Send the spans of this process to ``provider`` until the block ends."""
    global _provider  # noqa: PLW0603  # a process has one, as it has one log
    _provider = provider
    try:
        yield
    finally:
        _provider = None
