"""Every target reads its real examples, as ``python -m tests.fuzz`` begins with them."""

from __future__ import annotations

import pytest

from tests.fuzz.target import names, target_of


@pytest.mark.parametrize("name", names())
def test_real_examples_are_read_or_refused_and_nothing_else(name: str) -> None:
    target = target_of(name)
    assert target.seeds
    for seed in target.seeds:
        target.run(seed)


@pytest.mark.parametrize("name", names())
def test_a_configuration_without_a_known_target_is_read_or_refused(name: str) -> None:
    for data in (b"", b"\0", b"\xff\xfe", b"[" * 5_000, b"\xf0\x9f\x98\x80" * 100, b"9" * 5_000, b"\n" * 1_000):
        target_of(name).run(data)
