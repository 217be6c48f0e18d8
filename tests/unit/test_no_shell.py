from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PRODUCT = sorted(
    path
    for room in ("autotuner", "api", "trials", "migrations", "examples")
    for path in (ROOT / room).rglob("*.py")
    if "__pycache__" not in path.parts
)

SHELLS = {"system", "popen", "getoutput", "getstatusoutput", "create_subprocess_shell"}
"""Functions of ``os``, ``subprocess`` and ``asyncio`` that hand a text to a shell."""

READERS = {"eval", "exec"}
"""Functions that run a text as Python."""


def dangers(source: str) -> list[str]:
    """Calls that give a text to a shell or to Python."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return [f"line {call.lineno}: {ast.unparse(call.func)}" for call in calls if _is_danger(call)]


def _is_danger(call: ast.Call) -> bool:
    match call.func:
        case ast.Attribute(value=ast.Name(id="os" | "subprocess" | "asyncio"), attr=function) if function in SHELLS:
            return True
        case ast.Name(id=function) if function in READERS:
            return True
    return any(word.arg == "shell" for word in call.keywords)


def test_nothing_is_handed_to_a_shell_or_run_as_code() -> None:
    assert len(PRODUCT) > 500
    assert {path: found for path in PRODUCT if (found := dangers(path.read_text()))} == {}


@pytest.mark.parametrize(
    "source",
    [
        *("os.system('ls')", "subprocess.run('ls', shell=True)", "eval('1')"),
        *("asyncio.create_subprocess_shell('ls')", "subprocess.getoutput('ls')", "os.popen('ls')"),
    ],
)
def test_what_would_be_is_found(source: str) -> None:
    assert dangers(source)
