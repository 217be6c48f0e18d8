"""Layouts as arguments in our own words."""

from __future__ import annotations

from autotuner.domain.layouts.choice import CollectiveProtocol, Recompute
from autotuner.domain.layouts.layout import Layout
from autotuner.export.registry import export
from tests.builders import big_job


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
