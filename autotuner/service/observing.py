"""The service's logs and traces: spans, and one line per event on standard error (JSON, except in a terminal)."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any, Literal

import structlog
from opentelemetry import trace

from autotuner.core.errors import InvalidInput
from autotuner.runs.tracing import traced_by


def configure_logs(level: str) -> None:
    """Configure the log of the whole process, to show events of this level and of more serious levels.

    Only the code that starts a process calls it.
    """
    renderer = structlog.dev.ConsoleRenderer() if sys.stderr.isatty() else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            _name_trace,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),  # the standard error at the time of writing
    )


def silence_optuna() -> None:
    """Stop Optuna from writing a log line for every study, since a sweep writes its own events."""
    import optuna  # noqa: PLC0415  # a service that runs no sweep needs none

    optuna.logging.set_verbosity(optuna.logging.WARNING)


def _name_trace(_: object, __: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Add the ids of the current trace and span to a log line, if there is a current span."""
    span = trace.get_current_span().get_span_context()
    if span.is_valid:
        line.update(trace_id=format(span.trace_id, "032x"), span_id=format(span.span_id, "016x"))
    return line


@contextmanager
def exporting(telemetry: Literal["none", "otlp"]) -> Iterator[None]:
    """Export the spans of this process while the block runs, if ``telemetry`` is ``otlp``.

    The environment variable OTEL_EXPORTER_OTLP_ENDPOINT, or a similar variable, names the receiver.

    Raises:
        InvalidInput: The export is wanted, but the extra ``telemetry`` is not installed.
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
        rule = f"needs the extra `telemetry` of this package: install it with pip ({error})"
        raise InvalidInput("AUTOTUNER_TELEMETRY", telemetry, rule, "none") from error
    named = Resource.create({"service.name": "autotuner"}).merge(
        OTELResourceDetector().detect()
    )  # the environment wins
    provider = TracerProvider(resource=named)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    with traced_by(provider):
        try:
            yield
        finally:
            provider.shutdown()
