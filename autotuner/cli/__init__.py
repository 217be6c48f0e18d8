"""The command line: predict, sweep, show, serve, worker, migrate, catalog."""

from autotuner.cli.main import main

__all__ = ["main"]
