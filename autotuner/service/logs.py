"""Logging of the service: one line per event on standard error, JSON unless a person is watching."""

from __future__ import annotations

import logging
import sys

import structlog

from autotuner.tracing import name_trace


def configure_logs(level: str) -> None:
    """Log events of that level and above; for the whole process, so only the composition root calls it."""
    renderer = structlog.dev.ConsoleRenderer() if sys.stderr.isatty() else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            name_trace,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),  # as it is when a line is written
    )


def silence_optuna() -> None:
    """Keep Optuna from announcing every study; a sweep has its own events."""
    import optuna  # noqa: PLC0415  # a service that runs no sweep needs none

    optuna.logging.set_verbosity(optuna.logging.WARNING)
