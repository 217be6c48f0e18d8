from __future__ import annotations

from dataclasses import fields

from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.prediction import Memory
from autotuner.core.workload import Workload
from autotuner.search.explain.arranging import arranged
from autotuner.search.explain.memory_sources import source_of_memory
from tests.builders import h100_cluster, llama_70b

JOB = Job(model=llama_70b(), cluster=h100_cluster(), workload=Workload(seq_len=8192, global_batch_size=1024))


def said(words: str, part: str) -> str:
    return source_of_memory(part, arranged(Layout.parse(words), JOB), JOB)


def test_every_part_of_the_memory_has_a_source() -> None:
    parts = [f.name for f in fields(Memory) if f.name.endswith("_bytes")]
    assert all(said("zero2 tp8 pp4 1f1b mb1 flash bf16", part) for part in parts)


def test_weights_are_split_over_tensor_and_pipeline_ranks_and_shared_by_those_that_shard() -> None:
    whole = said("zero2 tp8 pp4 1f1b mb1 flash bf16", "parameters_bytes")
    assert whole == "70.6B × 2 bytes / (tp 8 × pp 4), whole on every data-parallel rank"
    assert said("fsdp64 mb1 flash bf16", "parameters_bytes") == "70.6B × 2 bytes, each shared by 64 ranks"


def test_adamw_keeps_a_master_and_two_moments_which_sharding_shares() -> None:
    assert said("zero2 tp8 pp4 1f1b mb1 flash bf16", "optimizer_bytes") == (
        "AdamW: 12 bytes a weight, two fp32 moments and an fp32 master, shared by 2 ranks"
    )


def test_activations_are_those_of_the_micro_batches_in_flight() -> None:
    assert said("dp2 tp8 pp4 1f1b mb2 flash bf16", "activations_bytes").startswith(
        "4 micro-batch(es) in flight on rank 0, 2 × 8,192 tokens each"
    )
    assert "inputs of layers alone" in said("fsdp64 mb1 recompute-full flash bf16", "activations_bytes")


def test_logits_lie_where_the_loss_is_and_tensor_ranks_split_them() -> None:
    assert said("dp2 tp8 pp4 1f1b mb1 flash bf16", "logits_bytes") == (
        "1 × 8,192 tokens × 128,256 words / tp 8, and their softmax and gradients, where the loss is"
    )


def test_an_allowance_is_called_one() -> None:
    assert "no law, an allowance" in said("fsdp64 mb1 flash bf16", "allowance_bytes")
