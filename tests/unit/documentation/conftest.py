from __future__ import annotations

from tests.unit.cli.conftest import cli, migrated_file, no_terminal

__all__ = ["cli", "migrated_file", "no_terminal"]
