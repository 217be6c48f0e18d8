"""Choose how a model is trained: predict every legal layout, measure a few, and rank all of them by MFU.

``autotuner.predict``, ``explain``, ``export``, ``import_script``, ``plan``, ``sweep``, ``track``, ``backtest`` and
``support`` answer in one call; ``autotuner.connect`` asks a service instead. They are loaded when they are first used,
since ranks of a trial import this package.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autotuner.client import backtest, connect, explain, export, import_script, plan, predict, support, sweep, track

__all__ = ["backtest", "connect", "explain", "export", "import_script", "plan", "predict", "support", "sweep", "track"]


def __getattr__(name: str) -> object:
    """Load a function when it is first used."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("autotuner.client"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
