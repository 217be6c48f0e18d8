"""The command line: predict, explain, sweep, show, rules, backtest, serve, worker, migrate, catalog."""

from autotuner.cli.main import main

__all__ = ["main"]
