"""Descriptions of software and of published sources."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from autotuner.backtest import words
from autotuner.backtest.clusters import Source, software, source_of, sources
from autotuner.catalog.hardware import load_accelerator, load_link
from autotuner.catalog.models import model_called, models
from autotuner.catalog.software import load_stack, stacks
from autotuner.core.choices import ContextExchange, Fp8Recipe
from autotuner.core.stack import Stack

PUBLISHED = Path(__file__).parents[2] / "published"


@pytest.mark.parametrize("beginning", sources())
def test_a_source_is_known_by_its_beginning_and_nothing_but_that(beginning: str) -> None:
    known = source_of({"source": f"{beginning} and the file in it"})
    assert beginning in known.match
    assert beginning not in source_of({"source": f"as in {beginning}"}).match


@pytest.mark.parametrize("row", [*({"source": b} for b in sources()), *({"framework": name} for name in software())])
def test_every_word_of_a_description_means_something(row: dict[str, str]) -> None:
    source = source_of(row)
    assert load_stack(source.stack).name == source.stack
    words.shard_level(source.sharding)
    words.recompute(source.recompute)
    words.attention_kernel(source.attention, source.flash)
    Fp8Recipe.from_label(words.fp8_recipe("", source.fp8_recipe).label)
    ContextExchange.from_label(source.context_exchange)
    assert source.inter_node_link is None or load_link(source.inter_node_link)


def test_every_stack_of_the_catalog_is_some_software_s_or_a_source_s_or_a_default() -> None:
    described = {source_of({"source": beginning}).stack for beginning in sources()}
    named = {source_of({"framework": name, "date": "2022" * name.endswith("-lm")}).stack for name in software()}
    newest = {source_of({"framework": name, **NEWEST}).stack for name in software()}
    assert described | named | newest | {Stack().name, Source().stack} == set(stacks())


NEWEST = {"release": "26.08", "precision": "mxfp8", "gpu": "GB200"}


@pytest.mark.parametrize(
    ("changes", "stack"),
    [
        ({}, "megatron-bridge-graphs"),
        ({"release": "26.04.01"}, "megatron-bridge"),
        ({"precision": "bf16"}, "megatron-bridge"),
        ({"gpu": "H100-80GB-SXM"}, "megatron-bridge"),
        ({"release": ""}, "megatron-bridge"),
    ],
)
def test_a_release_of_software_is_told_by_what_its_rows_hold(changes: dict[str, str], stack: str) -> None:
    assert source_of({"framework": "Megatron-Bridge", **NEWEST, **changes}).stack == stack


def test_every_published_run_is_of_software_or_a_source_that_is_described() -> None:
    for path in PUBLISHED.glob("*.csv"):
        with path.open(encoding="utf-8") as file:
            rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
        if "zero_or_fsdp" in rows[0]:  # a table of runs
            assert all(source_of(row).match for row in rows), path.name


def test_an_unknown_source_gets_typical_software_and_the_network_of_a_typical_cluster() -> None:
    source = source_of({"source": "my own cluster"})
    assert source.stack == "typical"
    assert (source.inter_node_link, source.oversubscription, source.congestion) == (None, 2.0, None)  # of those fitted


@pytest.mark.parametrize(
    ("row", "stack"),
    [
        ({"source": "github somebody/runs", "framework": "Megatron-LM (main, 2025)"}, "megatron-core"),
        ({"source": "github NVIDIA-NeMo/Megatron-Bridge docs"}, "megatron-bridge"),
        ({"source": "docs.nvidia.com nemo-framework user-guide"}, "nemo"),
        ({"source": "arXiv:2104.12345 table 2", "notes": "Megatron-LM on 64 V100"}, "megatron"),
        ({"source": "arXiv:2402.15627 table 2", "notes": "Megatron-LM baseline"}, "megatron-core"),
        ({"source": "my blog", "notes": "trained with torchtitan"}, "torchtitan"),
        ({"source": "my blog", "notes": "PyTorch FSDP, bf16"}, "torchtitan"),
        ({"source": "github EleutherAI/gpt-neox README"}, "megatron-deepspeed"),
        ({"source": "github NVIDIA/dgxc-benchmarking grok1", "framework": "maxtext"}, "maxtext"),
    ],
)
def test_software_is_known_by_its_column_else_by_the_words_of_source_and_notes(row: dict[str, str], stack: str) -> None:
    assert source_of(row).stack == stack


def test_software_of_a_time_has_the_defaults_of_that_time() -> None:
    old, new = (source_of({"source": f"arXiv:{month}.00001", "framework": "Megatron-LM"}) for month in ("2104", "2406"))
    assert (old.sharding, old.attention) == ("zero0", "fused_softmax")
    assert (new.sharding, new.attention) == ("distributed optimizer", "transformer engine")


@pytest.mark.parametrize(
    ("model", "gpu", "precision", "sharding", "recompute"),
    [
        ("GPT OSS 120B", "B200", "bf16", "", "selective (layernorm + moe_act)"),
        ("GPT OSS 120B", "B300", "bf16", "", "none"),
        ("DeepSeek-V3", "H100", "fp8-cs", "", "selective (mla_up_proj + mlp)"),
        ("DeepSeek-V3", "GB200", "mxfp8", "", "selective (mla_up_proj)"),
        ("LLAMA3_8B", "H100", "fp8-cs", "", "full (5 layers)"),
        ("LLAMA3_8B", "H100", "bf16", "", "none"),
        ("LLAMA3_70B", "GB200", "bf16", "FSDP", "none + offload"),
        ("LLAMA3_70B", "GB200", "mxfp8", "", "none"),
    ],
)
def test_blank_recomputation_is_what_the_software_s_recipe_of_that_model_says(
    model: str, gpu: str, precision: str, sharding: str, recompute: str
) -> None:
    source = source_of({"framework": "Megatron-Bridge"})
    known, device = model_called(model), load_accelerator(gpu.lower())
    assert known is not None
    assert source.recompute_of(known.name, device.name, {"precision": precision, "zero_or_fsdp": sharding}) == recompute


def test_every_recipe_is_of_models_in_the_catalog_and_says_what_is_recomputed() -> None:
    for name in software():
        for recipe in source_of({"framework": name, "date": "2024-09" if name == "nemo-2024" else ""}).recipes:
            assert {*recipe.models} <= {*models()}
            words.recompute(recipe.recompute)


def test_nvidia_s_releases_tell_the_time_of_a_table() -> None:
    old, new = (source_of({"framework": "nemo", "release": release}) for release in ("24.03.01.framework", "25.04"))
    assert (old.attention, new.attention) == ("flash", "transformer engine")
