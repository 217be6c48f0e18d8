"""Sends between stages, places of ranks and choices of NCCL, in the words of trainers."""

from __future__ import annotations

from typing import Any

import pytest

from autotuner.core.choices import ExportFormat, P2PTransport, PipelineSchedule, RankOrder
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.link import LinkHealth
from autotuner.core.workload import Workload
from autotuner.exports.formats import export, read
from tests.builders import big_job, h100_cluster, llama_70b

F = ExportFormat
FOREIGN = sorted({*ExportFormat} - {F.ARGUMENTS, F.TORCHRUN, F.SBATCH})
MEGATRON = (F.MEGATRON_LM, F.MEGATRON_BRIDGE, F.NEMO)
CONFIGURED = [one for one in FOREIGN if one not in (F.ACCELERATE, F.TRANSFORMERS)]
"""Those with pipelines."""


def job() -> Job:
    cluster = h100_cluster(4, link_health=(LinkHealth(ends=(2, 3), delay_s=0.03),))
    return Job(model=llama_70b(), cluster=cluster, workload=Workload(seq_len=4096, global_batch_size=64))


def pipelined(**changes: Any) -> Layout:
    """Four stages of a node each, unless it is told otherwise."""
    fields = {"tensor_parallel_degree": 4, "data_parallel_replicate_degree": 2, "pipeline_parallel_degree": 4}
    return Layout(**(fields | changes))


def unsupported(format_: ExportFormat, layout: Layout) -> set[str]:
    return {reason.field for reason in export(job(), layout, format_).unsupported}


@pytest.mark.parametrize("format_", MEGATRON)
def test_megatron_numbers_replicas_outermost_only_where_it_shares_nothing_among_them(format_: ExportFormat) -> None:
    layout = pipelined(rank_order=RankOrder.REPLICAS_OUTERMOST)
    written = export(job(), layout, format_)
    assert "rank_order" not in unsupported(format_, layout)
    assert "tp-pp-dp" in written.text or "use_tp_pp_dp_mapping=true" in written.text
    assert any("tp-cp-ep-pp-dp" in line for line in written.left_to_trainer)
    found = read(written.text, format_, 32).layout
    assert found.rank_order == RankOrder.REPLICAS_OUTERMOST
    assert found.data_parallel_replicate_degree == 2
    layout = pipelined(data_parallel_shard_degree=2, tensor_parallel_degree=2, rank_order=RankOrder.REPLICAS_OUTERMOST)
    assert "rank_order" in unsupported(format_, layout)
    assert "mapping" not in export(job(), layout, format_).text


@pytest.mark.parametrize("format_", CONFIGURED)
def test_stages_that_share_nodes_are_not_rotated_by_a_hostfile(format_: ExportFormat) -> None:
    layout = pipelined(tensor_parallel_degree=2, data_parallel_replicate_degree=4, pipeline_parallel_degree=4)
    assert "stage_rotation" not in unsupported(format_, layout)
    eight = pipelined(tensor_parallel_degree=2, pipeline_parallel_degree=8, stage_rotation=1)
    assert "stage_rotation" in unsupported(format_, eight)


def test_our_own_words_say_all_of_it() -> None:
    layout = pipelined(
        pipeline_schedule=PipelineSchedule.ADAPTIVE,
        extra_slack=1,
        p2p_transport=P2PTransport.DELEGATED,
        num_delegates=2,
        rank_order=RankOrder.REPLICAS_OUTERMOST,
        stage_rotation=1,
    )
    for format_ in (F.ARGUMENTS, F.TORCHRUN, F.SBATCH):
        written = export(job(), layout, format_)
        assert read(written.text, format_).layout == layout
        assert not any("hostfile" in line for line in written.left_to_trainer)


# ---------------------------------------------------------------- what a script tells NCCL
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
        ("NCCL_ALGO=PAT", "is not an algorithm or protocol for all-reduces that a layout can have"),
        ("NCCL_PXN_DISABLE=yes", "must be 0 or 1"),
        ("NCCL_IB_QPS_PER_CONNECTION=0", "from 1 to 999"),
        ("NCCL_IB_SPLIT_DATA_ON_QPS=0", "whole messages are sent in turn"),
    ],
)
def test_a_choice_that_a_layout_does_not_have_is_reported(setting: str, why: str) -> None:
    plain, found = (read(f"{prefix}{_COMMAND}", "megatron-lm") for prefix in ("", f"export {setting}\n"))
    assert found.layout == plain.layout
    (detail,) = (note.detail for note in found.notes if note.setting == setting)
    assert why in detail


@pytest.mark.parametrize("name", ["megatron-lm", "deepspeed", "accelerate", "transformers"])
def test_nccl_settings_of_an_export_are_read_back(name: str) -> None:
    names = ("collective_algorithm", "collective_protocol", "collective_channels", "pxn", "queue_pairs")
    for algorithm in ("algo-nvls", "algo-collnet"):
        layout = Layout.parse(f"dp64 mb1 flash bf16 {algorithm} proto-simple channels8 no-pxn qps4")
        found = read(export(big_job(), layout, name).text, name, 64).layout
        assert [getattr(found, field) for field in names] == [getattr(layout, field) for field in names]
