"""A service on two nodes that are processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.service import Service


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """A service that may be stopped and entered again."""
    (tmp_path / "engines.toml").write_text(f'[pair]\nkind = "processes"\nfolder = "{tmp_path}/jobs"\npoll_s = 0.2\n')
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTOTUNER_ENGINES", str(tmp_path / "engines.toml"))
        yield Service(tmp_path)
