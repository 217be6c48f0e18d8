"""Pieces of work, as logs and traces tell them: a sweep, a trial, a delivery."""

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
"""Tracer provider of this process, while it traces."""


@contextmanager
def working_on(name: str, **ids: str) -> Iterator[trace.Span]:
    """Do the block as one piece of work: each line that is logged meanwhile has the ids, and so has its span."""
    tracer = trace.get_tracer("autotuner", tracer_provider=_provider or trace.NoOpTracerProvider())
    attributes = {f"autotuner.{key}": value for key, value in ids.items()}
    with (
        structlog.contextvars.bound_contextvars(**ids),
        tracer.start_as_current_span(name, attributes=attributes) as span,
    ):
        yield span


def carried(work: Callable[[], Answer]) -> Callable[[], Answer]:
    """The work as a part of what goes on here, for another thread to do."""
    return partial(copy_context().run, work)


# ---------------------------------------------------------------------- where spans go
def tracer_provider() -> trace.TracerProvider | None:
    """Return the provider that takes this process's spans; None if it does not trace."""
    return _provider


@contextmanager
def traced_by(provider: trace.TracerProvider) -> Iterator[None]:
    """Give the spans of this process to ``provider`` meanwhile."""
    global _provider  # noqa: PLW0603  # a process has one, as it has one log
    _provider = provider
    try:
        yield
    finally:
        _provider = None
