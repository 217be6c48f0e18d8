"""What DeepSpeed is told of a layout, and what it cannot be told."""

from __future__ import annotations

import json

import pytest

from autotuner.core.layout import Layout
from autotuner.export.registry import export
from tests.builders import big_job


def test_the_batch_sizes_multiply_and_the_pipeline_s_size_stands_beside_the_stage() -> None:
    exported = export(big_job(), Layout.parse("zero4 pp8 1f1b mb2 recompute-full flash bf16"), "deepspeed")
    assert json.loads(exported.files[0].text) == {
        "train_batch_size": 1024,
        "gradient_accumulation_steps": 128,
        "train_micro_batch_size_per_gpu": 2,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 1, "reduce_bucket_size": 13107200},
        "pipeline": {"stages": 8, "activation_checkpoint_interval": 1},
    }
    assert (
        "the script builds PipelineModule(num_stages=8): DeepSpeed does not read pipeline.stages itself"
        in exported.defaults
    )


def test_stages_and_automatic_tensor_ranks_never_stand_in_one_configuration() -> None:
    exported = export(big_job(), Layout.parse("zero2 tp4 pp4 1f1b mb1 flash bf16"), "deepspeed")
    config = json.loads(exported.files[0].text)
    assert config["pipeline"] == {"stages": 4}
    assert "tensor_parallel" not in config
    assert "deepspeed-splits-no-stage-over-tensor-ranks" in {reason.rule for reason in exported.unsaid}


def test_recomputation_of_a_whole_model_is_the_script_s() -> None:
    exported = export(big_job(), Layout.parse("fsdp64 mb2 recompute-full flash bf16"), "deepspeed")
    assert exported.arguments == ("--gradient_checkpointing",)


def test_what_the_script_decides_is_said_with_the_layout_s_values() -> None:
    exported = export(big_job(), Layout.parse("fsdp64 mb2 compiled flash bf16"), "deepspeed")
    assert exported.defaults[-1] == (
        "the script decides attention_kernel (flash), fused_norm (on), compiled (on), optimizer_kernel (fused)"
    )


@pytest.mark.parametrize(
    ("words", "rule", "nearest"),
    [
        ("dp2 fsdp4", "deepspeed-shards-over-all-replicas", 1),
        ("dp8 bucket1000", "deepspeed-sizes-no-bucket-at-stage-0", 26214400),
        ("zero8 bucket1001", "deepspeed-counts-whole-elements", 1002),
        ("fsdp4 pp2 1f1b", "deepspeed-pipelines-shard-optimizers-at-most", "optimizer"),
        ("dp4 pp2 gpipe", "deepspeed-pipelines-run-1f1b", "1f1b"),
        ("dp4 pp2 v2 interleaved_1f1b", "deepspeed-has-one-stage-per-rank", 1),
        ("dp4 pp2 1f1b lessfirst1", "deepspeed-cuts-no-first-stage", 0),
        ("dp4 pp2 1f1b lesslast1", "deepspeed-cuts-no-last-stage", 0),
        ("dp4 pp2 tp2 1f1b", "deepspeed-splits-no-stage-over-tensor-ranks", 1),
        ("dp4 pp2 cp2 1f1b cp-all_to_all", "deepspeed-splits-no-sequence-in-stages", 1),
        ("dp4 tp2 cp2 cp-all_to_all", "deepspeed-splits-sequence-or-tensors", 1),
        ("dp4 cp2", "deepspeed-exchanges-heads-for-sequence", "all_to_all"),
        ("dp4 tp2 sp", "deepspeed-splits-no-norms", False),
        ("dp4 tp2 sp compiled async-tp", "deepspeed-cuts-no-products", False),
        ("zero4 pp2 ep2 1f1b", "deepspeed-splits-experts-outside-pipelines", 1),
        ("fsdp4 cp2 ep2 cp-all_to_all", "deepspeed-shards-no-parameters-beside-sequence-and-experts", "gradients"),
        ("dp8 recompute-selective", "deepspeed-recomputes-all-or-nothing", "full"),
        ("dp8 recompute-full every2", "deepspeed-recomputes-every-layer", 1),
        ("dp8 fp8", "deepspeed-multiplies-in-16-bits-or-more", "bf16"),
        ("dp8 offload", "deepspeed-keeps-activations", False),
    ],
)
def test_what_deepspeed_cannot_say_is_told_with_the_nearest_that_it_can(
    words: str, rule: str, nearest: int | str | bool
) -> None:
    unsaid = {reason.rule: reason.nearest for reason in export(big_job(), Layout.parse(words), "deepspeed").unsaid}
    assert unsaid[rule] == nearest
