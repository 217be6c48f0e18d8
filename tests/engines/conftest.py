"""What tests of all engines have in common: each engine is set up once, and stays with one process of tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Group the tests of an engine's folder, for ``--dist loadgroup``."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.xdist_group(item.path.parent.name))
