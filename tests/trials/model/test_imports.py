"""import-linter sees packages of torch as one, so that the model imports no ``torch.distributed`` is held here."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import trials.model

MODULES = sorted(Path(next(iter(trials.model.__path__))).glob("*.py"))


def imported(module: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_no_module_of_the_model_knows_ranks(module: Path) -> None:
    assert [name for name in imported(module) if name.startswith("torch.distributed")] == []
