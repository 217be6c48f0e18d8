"""What accelerate and the Trainer cannot be told."""

from __future__ import annotations

import pytest

from autotuner.core.layout import Layout
from autotuner.export.registry import export
from tests.builders import big_job, tiny_job


@pytest.mark.parametrize(
    ("words", "rule", "nearest"),
    [
        ("dp4 pp2 1f1b", "accelerate-has-no-pipeline", 1),
        ("fsdp4 ep2", "accelerate-has-no-expert-ranks", 1),
        ("fsdp4 tp2 sp", "accelerate-splits-no-norms", False),
        ("dp2 zero4", "accelerate-replicates-no-zero-shards", 1),
        ("dp4 cp2", "accelerate-shards-what-it-splits-sequences-of", "parameters"),
        ("dp4 tp2", "accelerate-shards-beside-tensor-ranks", "parameters"),
        ("zero4 tp2", "accelerate-shards-beside-tensor-ranks", "parameters"),
        ("fsdp4 tp2 cp2 cp-all_to_all", "accelerate-exchanges-heads-without-tensor-ranks", "all_gather"),
        ("dp4 fsdp1 cp2", "accelerate-replicates-shards", 4),
        ("zero4 fp8", "accelerate-zero-multiplies-in-16-bits-or-more", "bf16"),
        ("fsdp8 recompute-selective", "accelerate-recomputes-all-or-nothing", "full"),
        ("fsdp8 offload", "accelerate-offloads-what-layers-start-from", False),
        ("dp8 bucket1000000", "accelerate-sizes-no-bucket", 26214400),
        ("fsdp8 recompute-full every2", "accelerate-recomputes-every-layer", 1),
        ("dp8 recompute-full offload", "accelerate-offloads-with-fsdp", False),
        ("fsdp8 nvfp4", "accelerate-multiplies-in-8-bits-or-more", "bf16"),
        ("fsdp8 fp8 mxfp8", "accelerate-scales-tensors", "tensorwise"),
    ],
)
def test_what_accelerate_cannot_say_is_told_with_the_nearest_that_it_can(
    words: str, rule: str, nearest: int | str | bool
) -> None:
    unsaid = {reason.rule: reason.nearest for reason in export(big_job(), Layout.parse(words), "accelerate").unsaid}
    assert unsaid[rule] == nearest


@pytest.mark.parametrize(
    ("words", "rule", "nearest"),
    [
        ("fsdp4 tp2", "transformers-splits-no-tensors", 1),
        ("dp8 bucket1048577", "transformers-sizes-whole-mebibytes", 2097152),
        ("dp4 cp2 cp-all_to_all bucket1048576", "transformers-sizes-no-bucket-beside-ulysses", 26214400),
        ("fsdp8 fp8", "transformers-multiplies-in-16-bits-or-more", "bf16"),
    ],
)
def test_what_the_trainer_cannot_be_told_is_told_with_the_nearest_that_it_can(
    words: str, rule: str, nearest: int | str | bool
) -> None:
    unsaid = {reason.rule: reason.nearest for reason in export(big_job(), Layout.parse(words), "transformers").unsaid}
    assert unsaid[rule] == nearest


def test_on_cores_fsdp_would_be_left_out_without_a_word() -> None:
    for name in ("accelerate", "transformers"):
        assert [reason.field for reason in export(tiny_job(), Layout.parse("fsdp2 fp32 math"), name).unsaid] == [
            "shard_level"
        ]


def test_replicas_of_shards_are_said_to_the_trainer_in_its_environment() -> None:
    assert export(big_job(), Layout.parse("dp2 fsdp32 flash bf16"), "transformers").environment == {
        "ACCELERATE_USE_PARALLELISM_CONFIG": "true",
        "PARALLELISM_CONFIG_DP_REPLICATE_SIZE": "2",
        "PARALLELISM_CONFIG_DP_SHARD_SIZE": "32",
    }
