"""The command line; ``main`` puts its commands together."""

from autotuner.cli.main import main

__all__ = ["main"]
