"""Shapes of public models against the sizes that their publishers state, and models by name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.catalog.models import load_model, model_called, model_like, models
from tests.builders import tiny_model

CHECKPOINTS = {
    "bloom-176b": 176_247_271_424,
    "bloom-7b1": 7_069_016_064,
    "command-r-35b": 34_980_831_232,
    "command-r-plus": 103_810_674_688,
    "dbrx": 131_596_523_520,
    "deepseek-llm-67b": 67_424_755_712,
    "deepseek-llm-7b": 6_910_365_696,
    "deepseek-moe-16b": 16_375_728_128,
    "deepseek-r1": 671_026_419_200,
    "deepseek-v2": 235_741_434_880,
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v3": 671_026_419_200,
    "falcon-40b": 41_303_293_952,
    "falcon-7b": 6_921_720_704,
    "gemma-2-27b": 27_227_128_320,
    "gemma-2-2b": 2_614_341_888,
    "gemma-2-9b": 9_241_705_984,
    "gemma-2b": 2_506_172_416,
    "gemma-3-1b": 999_885_952,
    "gemma-7b": 8_537_680_896,
    "glm-4-9b": 9_399_951_360,
    "gpt-j-6b": 6_050_882_784,
    "gpt-neox-20b": 20_554_567_680,
    "gpt-oss-120b": 116_829_156_672,
    "gpt-oss-20b": 20_914_757_184,
    "gpt2": 124_439_808,
    "gpt2-large": 774_030_080,
    "gpt2-medium": 354_823_168,
    "gpt2-xl": 1_557_611_200,
    "internlm2-20b": 19_861_149_696,
    "kimi-k2": 1_026_408_232_448,
    "llama-13b": 13_015_864_320,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-2-7b": 6_738_415_616,
    "llama-3-70b": 70_553_706_496,
    "llama-3-8b": 8_030_261_248,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "llama-3.3-70b": 70_553_706_496,
    "llama-33b": 32_528_943_616,
    "llama-65b": 65_285_660_672,
    "llama-7b": 6_738_415_616,
    "mistral-7b": 7_241_732_096,
    "mistral-large-123b": 122_610_069_504,
    "mistral-nemo-12b": 12_247_782_400,
    "mistral-small-24b": 23_572_403_200,
    "mixtral-8x22b": 140_620_634_112,
    "mixtral-8x7b": 46_702_792_704,
    "moonlight-16b": 15_960_111_936,
    "mpt-30b": 29_958_201_344,
    "mpt-7b": 6_649_286_656,
    "olmo-1b": 1_176_764_416,
    "olmo-2-13b": 13_716_198_400,
    "olmo-2-32b": 32_234_279_936,
    "olmo-2-7b": 7_298_617_344,
    "olmo-7b": 6_888_095_744,
    "olmoe-1b-7b": 6_919_161_856,
    "opt-1.3b": 1_315_758_080,
    "opt-13b": 12_853_473_280,
    "opt-30b": 29_974_540_288,
    "opt-6.7b": 6_658_473_984,
    "opt-66b": 65_719_574_528,
    "phi-3-medium": 13_960_238_080,
    "phi-3-mini": 3_821_079_552,
    "phi-3.5-moe": 41_873_153_344,
    "phi-4": 14_659_507_200,
    "pythia-1.4b": 1_414_647_808,
    "pythia-12b": 11_846_072_320,
    "pythia-2.8b": 2_775_208_960,
    "pythia-410m": 405_334_016,
    "pythia-6.9b": 6_857_302_016,
    "qwen2-0.5b": 494_032_768,
    "qwen2-1.5b": 1_543_714_304,
    "qwen2-57b-a14b": 57_409_011_200,
    "qwen2-72b": 72_706_203_648,
    "qwen2-7b": 7_615_616_512,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-72b": 72_706_203_648,
    "qwen2.5-7b": 7_615_616_512,
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-14b": 14_768_307_200,
    "qwen3-235b-a22b": 235_093_634_560,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-32b": 32_762_123_264,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-coder-480b-a35b": 480_154_875_392,
    "smollm2-1.7b": 1_711_376_384,
    "starcoder-15b": 15_517_456_384,
    "starcoder2-15b": 15_957_889_024,
    "starcoder2-3b": 3_030_371_328,
    "starcoder2-7b": 7_173_923_840,
    "tinyllama-1.1b": 1_100_048_384,
    "yi-34b": 34_388_917_248,
    "yi-6b": 6_061_035_520,
    "yi-9b": 8_829_407_232,
}
"""Elements of the published checkpoint, as Hugging Face counts them."""

NAMED = {
    "falcon-180b": 178e9,
    "gemma-3-12b": 11.77e9,
    "gemma-3-27b": 27.01e9,
    "gemma-3-4b": 3.88e9,
    "glm-4.5": 352.8e9,
    "glm-4.5-air": 106e9,
    "gpt-3-1.3b": 1.3e9,
    "gpt-3-125m": 0.125e9,
    "gpt-3-13b": 13e9,
    "gpt-3-175b": 174.604e9,
    "gpt-3-2.7b": 2.7e9,
    "gpt-3-20b": 20e9,
    "gpt-3-350m": 0.35e9,
    "gpt-3-5b": 5e9,
    "gpt-3-6.7b": 6.7e9,
    "gpt-3-760m": 0.76e9,
    "gpt-megatron-1.7b": 1.7e9,
    "gpt-megatron-145b": 145.6e9,
    "gpt-megatron-18b": 18.4e9,
    "gpt-megatron-1t": 1008e9,
    "gpt-megatron-22b": 22e9,
    "gpt-megatron-3.6b": 3.6e9,
    "gpt-megatron-310b": 310.1e9,
    "gpt-megatron-39b": 39.1e9,
    "gpt-megatron-530b": 529.6e9,
    "gpt-megatron-7.5b": 7.5e9,
    "gpt-megatron-76b": 76.1e9,
    "grok-1": 314e9,
    "llama-4-maverick": 400.7e9,
    "llama-4-scout": 107.77e9,
    "nanotron-1.34b": 1.3422e9,
    "nanotron-8.86b": 8.86e9,
    "nemotron-22b": 22e9,
    "nemotron-4-15b": 15.6e9,
    "nemotron-4-340b": 341e9,
    "nemotron-8b": 8.5e9,
    "opt-175b": 175e9,
}
"""What a paper or a configuration states in round numbers."""

NEARLY = {"deepseek-llm-67b", "moonlight-16b", "mpt-30b", "opt-66b", "qwen2-57b-a14b"}
"""Whose checkpoints hold a little more or less than their configurations describe."""

ROUNDING = 0.055
"""A size in a name has one digit or two: GPT-3 5B has 5.25."""


def test_a_model_has_as_many_parameters_as_its_checkpoint() -> None:
    nearly = {
        name: pytest.approx(size, rel=4e-5 if name in NEARLY else 0.0, abs=0) for name, size in CHECKPOINTS.items()
    }
    assert {name: load_model(name).num_parameters for name in CHECKPOINTS} == nearly


def test_a_model_has_about_as_many_parameters_as_it_is_said_to() -> None:
    assert {name: load_model(name).num_parameters for name in NAMED} == pytest.approx(NAMED, rel=ROUNDING)


def test_every_public_model_is_held_to_a_published_size() -> None:
    assert {*CHECKPOINTS, *NAMED} == {*models()} - {"llama-demo"}


def test_a_model_is_known_by_its_own_name() -> None:
    assert [name for name in {*models()} - {"llama-demo"} if model_called(name) != load_model(name)] == []


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


def test_every_model_can_be_built() -> None:
    assert [load_model(name).name for name in models()] == [*models()]


def test_the_demo_model_is_small_enough_for_one_core() -> None:
    # 6 FLOP per parameter and token: 512 tokens need 12 GFLOP, a tenth of a second of one core
    assert load_model("llama-demo").num_parameters < 5_000_000
