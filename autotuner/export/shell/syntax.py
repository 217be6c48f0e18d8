"""Syntax tree of a shell script, as shfmt prints it; the script is parsed, never run.

shfmt (mvdan/sh, in the wheel ``shfmt-py``) runs as a process of its own, so that no text can crash the service.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from textwrap import dedent
from typing import Any

from autotuner.core.errors import InvalidInput

Node = dict[str, Any]
"""A node of the tree: the fields of mvdan/sh's Go types (syntax/nodes.go), with the type's name as ``Type``."""

MAX_SCRIPT_CHARACTERS = 100_000
"""Long launch scripts have 30,000."""

MAX_OPEN_BRACKETS = 200
"""shfmt takes a gigabyte of stack for 200,000 open brackets."""

MAX_PARSE_S = 10
"""A script of 30,000 characters takes 0.02 s."""

_PLACEHOLDER = re.compile(r"(?<=[ =\t])<([A-Za-z_][\w ./-]*)>")
"""A value that a documentation leaves to its reader (``--load <path>``); a shell would read two redirections."""

_ERROR = re.compile(r"(?:<standard input>:)?(\d+):(?:\d+|\?): (.*)")


def parse_script(text: str) -> tuple[Node, bytes]:
    """Return the tree of a script, and the bytes that its nodes count.

    Raises:
        InvalidInput: The text is no shell script (the message names the line), is too long, or is nested too deep.
        RuntimeError: shfmt is not installed.
    """
    if len(text) > MAX_SCRIPT_CHARACTERS:
        rule = f"has {len(text):,} characters, and {MAX_SCRIPT_CHARACTERS:,} are read at most"
        raise InvalidInput("config", text[:60], rule)
    if _open_brackets(text) > MAX_OPEN_BRACKETS:
        raise InvalidInput("config", text[:60], "is nested too deep")
    lines = dedent(text.replace("\r\n", "\n"))  # a copy that is indented still ends its here-documents
    source = _PLACEHOLDER.sub(r"'<\1>'", lines.replace("\0", "").replace("\1", ""))
    return _parse(source), source.encode("utf-8", "replace")


def _open_brackets(text: str) -> int:
    """Return the largest number of brackets that are open at once."""
    depth = most = 0
    for char in text:
        depth += 1 if char in "([{" else -1 if char in ")]}" and depth else 0
        most = max(most, depth)
    return most


@lru_cache(maxsize=4)
def _parse(text: str) -> Node:
    """Return the tree; several formats are offered one text, which is parsed once."""
    command = [_shfmt(), "--language-dialect", "bash", "--to-json"]
    source = text.encode("utf-8", "replace")
    try:
        done = subprocess.run(command, input=source, capture_output=True, timeout=MAX_PARSE_S, env={}, check=False)
    except subprocess.TimeoutExpired:
        raise InvalidInput("config", text[:60], f"takes the shell's parser more than {MAX_PARSE_S} s") from None
    if done.returncode == 0:
        return json.loads(done.stdout)  # type: ignore[no-any-return]  # an object of type File
    message = next(iter(done.stderr.decode("utf-8", "replace").splitlines()), "")
    found = _ERROR.fullmatch(message.strip())
    if found is None:
        raise InvalidInput("config", text[:60], "cannot be read as a shell script")
    lines = text.splitlines()
    line = lines[int(found[1]) - 1].strip() if int(found[1]) <= len(lines) else ""
    raise InvalidInput("config", line[:60], f"cannot be read as a shell script: line {found[1]}: {found[2]}")


@lru_cache(maxsize=1)
def _shfmt() -> str:
    """Return the path of shfmt: beside this Python, where its wheel puts it, or on the path.

    Raises:
        RuntimeError: It is in neither place.
    """
    found = shutil.which("shfmt", path=str(Path(sys.executable).parent)) or shutil.which("shfmt")
    if found is None:
        raise RuntimeError("shfmt reads shell scripts and is not installed: pip install shfmt-py")
    return found
