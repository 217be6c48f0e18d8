"""The command line; ``main`` assembles its commands."""

from autotuner.cli.main import main

__all__ = ["main"]
