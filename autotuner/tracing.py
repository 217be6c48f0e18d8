"""Pieces of work, as logs and traces tell them: a sweep, a trial, a delivery."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from typing import Any, Literal, TypeVar

import structlog
from opentelemetry import trace

from autotuner.core.errors import InvalidInput

Answer = TypeVar("Answer")

_provider: trace.TracerProvider | None = None
"""Of this process, while it traces."""


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


def name_trace(_: object, __: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A step of the log that adds which trace a line belongs to, where there is one."""
    span = trace.get_current_span().get_span_context()
    if span.is_valid:
        line.update(trace_id=format(span.trace_id, "032x"), span_id=format(span.span_id, "016x"))
    return line


# ---------------------------------------------------------------------- where spans go
def tracer_provider() -> trace.TracerProvider | None:
    """Who takes this process's spans; None: nobody."""
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


@contextmanager
def exporting(telemetry: Literal["none", "otlp"]) -> Iterator[None]:
    """Send the spans of this process where OTEL_EXPORTER_OTLP_ENDPOINT and its like say, if that is wanted.

    Raises:
        InvalidInput: It is wanted, and the extra is not installed.
    """
    if telemetry == "none":
        yield
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415  # an extra
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError as error:
        rule = f"needs the extra `telemetry` of this package, such as pip installs ({error})"
        raise InvalidInput("AUTOTUNER_TELEMETRY", telemetry, rule, "none") from error
    named = Resource.create({"service.name": "autotuner"}).merge(OTELResourceDetector().detect())  # theirs comes first
    provider = TracerProvider(resource=named)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    with traced_by(provider):
        try:
            yield
        finally:
            provider.shutdown()
