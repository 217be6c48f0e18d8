"""Shapes of public models against the sizes that their publishers state, and models by name."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from autotuner.catalog.models import load_model, model_called, model_like, models
from tests.builders import tiny_model

_LINES = [line for line in (Path(__file__).parent / "model_sizes.csv").read_text().splitlines() if line[0] != "#"]
_ROWS = list(csv.DictReader(_LINES))
CHECKPOINTS = {row["model"]: int(row["parameters"]) for row in _ROWS if row["of"] == "checkpoint"}
NAMED = {row["model"]: float(row["parameters"]) for row in _ROWS if row["of"] == "round"}

NEARLY = {"deepseek-llm-67b", "moonlight-16b", "mpt-30b", "opt-66b", "qwen2-57b-a14b"}
"""Whose checkpoints hold a little more or less than their configurations describe."""

ROUNDING = 0.055
"""A size in a name has one digit or two: GPT-3 5B has 5.25."""


def test_a_model_has_as_many_parameters_as_its_checkpoint_or_about_as_its_name_says() -> None:
    nearly = {
        name: pytest.approx(size, rel=4e-5 if name in NEARLY else 0.0, abs=0) for name, size in CHECKPOINTS.items()
    }
    assert {name: load_model(name).num_parameters for name in CHECKPOINTS} == nearly
    assert {name: load_model(name).num_parameters for name in NAMED} == pytest.approx(NAMED, rel=ROUNDING)
    assert {*CHECKPOINTS, *NAMED} == {*models()} - {"llama-demo"}


@pytest.mark.parametrize(
    ("called", "name"),
    [
        ("LLAMA3_8B", "llama-3-8b"),
        ("Meta-Llama-3-70B", "llama-3-70b"),
        ("meta-llama/Llama-3.1-70B-Instruct", "llama-3.1-70b"),
        ("Llama 3.1 405B", "llama-3.1-405b"),
        ("LLAMA2-13B", "llama-2-13b"),
        ("LLaMA-65B", "llama-65b"),
        ("Llama3-70B (SFT)", "llama-3-70b"),
        ("llama3-70b truncated to 12 layers", "llama-3-70b"),
        ("Llama 4 Scout", "llama-4-scout"),
        ("Qwen3_30B_a3B", "qwen3-30b-a3b"),
        ("Qwen3-235B-A22B", "qwen3-235b-a22b"),
        ("Qwen2.5 72B", "qwen2.5-72b"),
        ("GPT OSS 120B", "gpt-oss-120b"),
        ("GPT3-175B", "gpt-3-175b"),
        ("GPT-3 6.7B", "gpt-3-6.7b"),
        ("DeepSeek-V3", "deepseek-v3"),
        ("DeepSeek V3 671B", "deepseek-v3"),
        ("deepseekv2 truncated to 4 layers", "deepseek-v2"),
        ("DeepSeek-V2-Lite", "deepseek-v2-lite"),
        ("Moonlight-16B (MLA+MoE)", "moonlight-16b"),
        ("Kimi-K2", "kimi-k2"),
        ("nemotron4-15b", "nemotron-4-15b"),
        ("Nemotron-15B", "nemotron-4-15b"),
        ("Nemotron4 340B", "nemotron-4-340b"),
        ("grok1-314b proxy 4L", "grok-1"),
        ("Mixtral-8x7B", "mixtral-8x7b"),
        ("Mixtral 8x22B", "mixtral-8x22b"),
        ("Mistral 7B v0.1", "mistral-7b"),
        ("GLM-4.5-Air", "glm-4.5-air"),
        ("gpt_oss_20b", "gpt-oss-20b"),
    ],
)
def test_a_model_is_known_by_what_tables_call_it(called: str, name: str) -> None:
    found = model_called(called)
    assert found is not None
    assert found.name == name


@pytest.mark.parametrize("called", ["", "my model", "GPT", "Llama-9B", "DeepSeek-V3 30B", "Nemotron-H-8B", "70B"])
def test_other_names_are_no_model_of_the_catalog(called: str) -> None:
    assert model_called(called) is None


def test_a_model_without_a_known_name_is_the_catalog_s_of_the_same_shapes() -> None:
    assert model_like(replace(load_model("mixtral-8x7b"), name="imported")).name == "mixtral-8x7b"
    assert model_like(load_model("llama-3.1-70b")).name == "llama-3.1-70b"  # llama-3-70b has these shapes too
    assert model_like(tiny_model()) == tiny_model()


def test_every_model_can_be_built_and_is_known_by_its_own_name() -> None:
    assert [load_model(name).name for name in models()] == [*models()]
    assert [name for name in {*models()} - {"llama-demo"} if model_called(name) != load_model(name)] == []
    # 6 FLOP per parameter and token: 512 tokens need 12 GFLOP, a tenth of a second of one core
    assert load_model("llama-demo").num_parameters < 5_000_000
