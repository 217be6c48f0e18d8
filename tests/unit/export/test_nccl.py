"""What a script tells NCCL."""

from __future__ import annotations

import pytest

from autotuner.domain.layouts.layout import Layout
from autotuner.domain.layouts.words import layout_of
from autotuner.export.registry import export, read
from tests.builders import big_job

_COMMAND = "torchrun --nproc-per-node 8 pretrain_gpt.py --micro-batch-size 1 --bf16"


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ("export NCCL_ALGO=allreduce:ring", "algo-ring"),
        ("NCCL_ALGO=Tree", "algo-tree"),
        ("export NCCL_PROTO=LL128", "proto-ll128"),
        ("export NCCL_MIN_NCHANNELS=16\nexport NCCL_MAX_NCHANNELS=16", "channels16"),
    ],
)
def test_variables_of_nccl_are_fields_of_the_layout(variables: str, words: str) -> None:
    plain, asked = layout_of("dp8 mb1 flash bf16"), layout_of(f"dp8 mb1 flash bf16 {words}")
    names = ("collective_algorithm", "collective_protocol", "collective_channels")
    found = read(f"{variables}\n{_COMMAND}", "megatron-lm").layout
    assert [getattr(found, name) for name in names] == [getattr(asked, name) for name in names]
    assert asked != plain


def test_a_choice_that_a_layout_does_not_have_is_told() -> None:
    found = read(f"export NCCL_ALGO=CollnetDirect\n{_COMMAND}", "megatron-lm")
    assert found.layout.collective_algorithm == Layout().collective_algorithm
    assert [note.detail for note in found.notes if note.setting == "NCCL_ALGO=CollnetDirect"] == [
        "a layout has no such choice for all-reduces"
    ]


@pytest.mark.parametrize("name", ["megatron-lm", "deepspeed", "accelerate", "transformers"])
def test_what_an_export_tells_nccl_is_read_back(name: str) -> None:
    layout = layout_of("dp64 mb1 flash bf16 algo-nvls proto-simple channels8")
    found = read(export(big_job(), layout, name).text, name, 64).layout
    assert (found.collective_algorithm, found.collective_protocol, found.collective_channels) == (
        layout.collective_algorithm,
        layout.collective_protocol,
        layout.collective_channels,
    )
