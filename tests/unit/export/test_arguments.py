"""Layouts as arguments in our own words."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotuner.core.choices import CollectiveProtocol, Recompute
from autotuner.core.errors import InvalidInput
from autotuner.core.layout import OPTIONS, Layout
from autotuner.export.registry import export, read, recognised
from tests.builders import big_job
from tests.properties.strategies import layouts


def test_a_layout_s_fields_are_flags_with_the_batch_before_them_and_defaults_left_out() -> None:
    layout = Layout(tensor_parallel_degree=8, sequence_parallel=True, fused_norm=False, recompute=Recompute.FULL)
    assert export(big_job(), layout, "arguments").text.splitlines() == [
        "--seq-len 8192 \\",
        "--global-batch-size 1024 \\",
        "--tensor-parallel-degree 8 \\",
        "--micro-batch-size 1 \\",
        "--sequence-parallel \\",
        "--recompute full \\",
        "--attention-kernel flash \\",
        "--precision bf16 \\",
        "--no-fused-norm",
    ]


def test_what_nccl_is_asked_stands_in_the_environment_too() -> None:
    exported = export(big_job(), Layout(collective_protocol=CollectiveProtocol.SIMPLE), "arguments")
    assert exported.environment == {"NCCL_PROTO": "simple"}
    assert "--collective-protocol" in exported.arguments


@given(layouts)
def test_any_layout_is_read_back_from_its_arguments(layout: Layout) -> None:
    text = f"torchrun train.py {' '.join(export(big_job(), layout, 'arguments').arguments)}"
    back = read(text, "arguments")
    assert (back.layout, back.num_ranks, back.notes) == (layout, layout.world_size, ())
    assert (back.seq_len, back.global_batch_size) == (8192, 1024)


def test_ranks_that_no_degree_names_are_replicas_and_said_to_be_assumed() -> None:
    back = read("torchrun --nproc-per-node 8 train.py --tensor-parallel-degree 2 --lr 1e-3 --recompute-evry 2")
    assert (back.layout.data_parallel_replicate_degree, back.num_ranks) == (4, 8)
    assert [(note.setting, note.kind.value) for note in back.notes] == [
        ("--data-parallel-replicate-degree", "assumed"),
        ("--lr", "ignored"),
        ("--recompute-evry", "ignored"),
    ]
    assert back.notes[-1].detail.endswith("recompute_every is")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("--tensor-parallel-degree 0", "must be above 0; nearest legal value: 1"),
        ("--tensor-parallel-degree two", "must be a whole number"),
        ("--tensor-parallel-degree", "must be a whole number"),
        ("--shard-level some", "must be one of none, optimizer, gradients, parameters"),
        ("--tensor-parallel-degree 3", "the degrees multiply to 3"),
        ("--tensor-parallel-degree 2 --seq-len 0", "must be above 0"),
        ("--learning-rate 1", "has no argument that names a field of a layout"),
    ],
)
def test_arguments_that_are_no_layout_are_refused(text: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        read(text, "arguments", 8)


@given(st.lists(st.sampled_from([f"--{name.replace('_', '-')}" for name in OPTIONS]) | st.text(max_size=8), max_size=9))
def test_any_text_becomes_a_layout_or_is_refused(words: list[str]) -> None:
    with suppress(InvalidInput):
        assert read(" ".join(words), "arguments").num_ranks


def test_arguments_are_recognised_by_fields_that_no_trainer_s_are_called_like() -> None:
    assert recognised("python train.py --data_parallel_shard_degree 8").format == "arguments"
