"""A parser that fails, for the test of what is told of one; no group that is run."""

from __future__ import annotations

from tests.fuzz.target import Target


def _fails(data: bytes) -> None:
    assert b"(" not in data, "brackets are not understood"


TARGETS = (Target(name="at_brackets", check=_fails, seeds=(b"a",), words=("(",)),)
