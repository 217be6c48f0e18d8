"""Names that a shell completes: models, clusters, training software, and sweeps of the database."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path

_SIZES = (8, 64)
_MORE_SIZES = (8, 16, 32, 64, 128, 256, 512, 1024)

Complete = Callable[[str], list[str]]
"""A function that returns the words that a shell may put in the place of the beginning of a word."""


def completing(name: str) -> Complete | None:
    """Return the shell completion for the option that sets the input ``name``; None if its values are not names."""
    return _NAMES.get(name)


def _models(typed: str) -> list[str]:
    from autotuner.catalog.models import models

    return _starting(typed, models())


def _stacks(typed: str) -> list[str]:
    from autotuner.catalog.software import stacks

    return _starting(typed, stacks())


def _accelerators(typed: str) -> list[str]:
    from autotuner.catalog.hardware import accelerators

    return _starting(typed, accelerators())


def _clusters(typed: str) -> list[str]:
    from autotuner.catalog.hardware import accelerators

    sizes = _MORE_SIZES if ":" in typed else _SIZES
    return _starting(typed, ["local", *(f"{name}:{size}" for name in accelerators() for size in sizes)])


def sweeps(typed: str) -> list[str]:
    """Return the ids of stored sweeps that start with a text; none if the database of the settings does not answer.

    A file of SQLite that does not exist is not made.
    """
    from autotuner.core.errors import AutotunerError

    try:
        from autotuner.service.settings import Settings
        from autotuner.store.options import Page
        from autotuner.store.sql import open_store

        url = Settings().database_url
        if url.startswith("sqlite:///") and not Path(url.removeprefix("sqlite:///")).is_file():
            return []
        with closing(open_store(url)) as store:
            found, _ = store.list_overviews(now=0, page=Page(limit=100))
    except (AutotunerError, ModuleNotFoundError):  # without the extra `service` nothing is stored
        return []
    return _starting(typed, (one.id for one in found))


_NAMES: dict[str, Complete] = {
    "model": _models,
    "accelerator": _accelerators,
    "cluster": _clusters,
    "stack": _stacks,
}


def _starting(typed: str, words: Iterable[str]) -> list[str]:
    return [word for word in words if word.startswith(typed)]
