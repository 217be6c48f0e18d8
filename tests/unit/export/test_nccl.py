"""What a script tells NCCL."""

from __future__ import annotations

import pytest

from autotuner.core.layout import Layout
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
        ("export NCCL_COLLNET_ENABLE=1 NCCL_ALGO=CollnetDirect", "algo-collnet"),
        ("export NCCL_PXN_DISABLE=1", "no-pxn"),
        ("export NCCL_IB_QPS_PER_CONNECTION=4\nexport NCCL_IB_SPLIT_DATA_ON_QPS=1", "qps4"),
    ],
)
def test_variables_of_nccl_are_fields_of_the_layout(variables: str, words: str) -> None:
    plain, asked = Layout.parse("dp8 mb1 flash bf16"), Layout.parse(f"dp8 mb1 flash bf16 {words}")
    names = ("collective_algorithm", "collective_protocol", "collective_channels", "pxn", "queue_pairs")
    found = read(f"{variables}\n{_COMMAND}", "megatron-lm").layout
    assert [getattr(found, name) for name in names] == [getattr(asked, name) for name in names]
    assert asked != plain


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ("NCCL_ALGO=PAT", "no such choice for all-reduces"),
        ("NCCL_PXN_DISABLE=yes", "must be 0 or 1"),
        ("NCCL_IB_QPS_PER_CONNECTION=0", "from 1 to 999"),
        ("NCCL_IB_SPLIT_DATA_ON_QPS=0", "whole messages take turns"),
    ],
)
def test_a_choice_that_a_layout_does_not_have_is_told(setting: str, why: str) -> None:
    plain, found = (read(f"{prefix}{_COMMAND}", "megatron-lm") for prefix in ("", f"export {setting}\n"))
    assert found.layout == plain.layout
    (detail,) = (note.detail for note in found.notes if note.setting == setting)
    assert why in detail


@pytest.mark.parametrize("name", ["megatron-lm", "deepspeed", "accelerate", "transformers"])
def test_what_an_export_tells_nccl_is_read_back(name: str) -> None:
    names = ("collective_algorithm", "collective_protocol", "collective_channels", "pxn", "queue_pairs")
    for algorithm in ("algo-nvls", "algo-collnet"):
        layout = Layout.parse(f"dp64 mb1 flash bf16 {algorithm} proto-simple channels8 no-pxn qps4")
        found = read(export(big_job(), layout, name).text, name, 64).layout
        assert [getattr(found, field) for field in names] == [getattr(layout, field) for field in names]
