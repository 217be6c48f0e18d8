from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotuner.catalog.software import stacks
from autotuner.core.choices import ExportFormat
from autotuner.core.errors import InvalidInput
from autotuner.export.formats import TARGETS, read, recognised, target_of
from autotuner.export.target import stack_of

READ = sorted(target.format for target in TARGETS.values() if target.read)


@pytest.mark.parametrize("wanted", READ)
@pytest.mark.parametrize(
    "text", ["", "{" * 20_000, "[" * 20_000, "- " * 20_000, "a = " + "[" * 5_000, "x: " + "{" * 5_000, "--" * 50_000]
)
def test_a_text_that_makes_no_sense_is_refused_or_read_but_never_fails(wanted: str, text: str) -> None:
    with suppress(InvalidInput):
        assert read(text, wanted).format == wanted


@settings(max_examples=30)
@given(st.text(max_size=300), st.sampled_from([None, *READ]), st.sampled_from([None, 1, 8]))
def test_any_text_is_refused_or_read(text: str, wanted: str | None, num_ranks: int | None) -> None:
    with suppress(InvalidInput):
        assert read(text, wanted, num_ranks).layout.world_size >= 1


def test_a_format_that_nobody_knows_or_recognises_is_asked_for_among_all_that_there_are() -> None:
    with pytest.raises(InvalidInput, match="torchrun"):
        target_of("fortran")
    with pytest.raises(InvalidInput, match="say its format: "):
        recognised("once upon a time")


def test_every_format_has_a_stack_of_the_catalog() -> None:
    assert {stack_of(one) for one in ExportFormat} <= set(stacks())


@pytest.mark.parametrize(
    ("wanted", "text"),
    [("deepspeed", '{"\\ud800": 1, "zero_optimization": {"stage": 3}}'), ("megatron-bridge", "model.x='\\ud800'")],
)
def test_names_that_are_no_unicode_are_told_so_that_they_can_be_shown(wanted: str, text: str) -> None:
    assert str(read(text, wanted).notes).encode()
    assert all(f"{note.setting}{note.detail}".encode() for note in read(text, wanted).notes)
