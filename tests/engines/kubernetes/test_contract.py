"""The Kubernetes engine keeps the contracts of launchers and of engines, on a cluster that is no real one.

Its pods are processes of this machine; everything between the engine and them is the protocol of Kubernetes over HTTP.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.engine_contract import *  # noqa: F403  # its tests run here
from tests.contracts.held import HeldEngine, held_launcher
from tests.contracts.launcher_contract import Subject, held_to_contract

pytestmark = pytest.mark.engine


@pytest.fixture
def subject(held: HeldEngine, tmp_path: Path) -> Iterator[Subject]:
    """Its launcher, as the service builds it."""
    with held_to_contract(held_launcher(held), tmp_path) as subject:
        yield subject
