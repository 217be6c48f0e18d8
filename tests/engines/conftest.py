"""What tests of all engines have in common: each engine is set up once, and stays with one process of tests."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]  # it ships no types


class ByEngine(LoadScopeScheduling):  # type: ignore[misc]  # of which none is known
    """Gives all tests of an engine's folder to one process.

    Two Slurms or two Rays beside each other would give their jobs the same numbers, and so the same ports: ranks would
    meet those of another job. Groups (``--dist loadgroup``) are not heard of: pytest 9.2 no longer reads the name of a
    test where xdist 3.8 writes the group.
    """

    def _split_scope(self, nodeid: str) -> str:
        return str(PurePosixPath(nodeid.partition("::")[0]).parent)


@pytest.hookimpl(optionalhook=True)  # tests of one process have no such plugin
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByEngine:
    """In the place of whatever ``--dist`` names, where this folder is named on the command line."""
    return ByEngine(config, log)
