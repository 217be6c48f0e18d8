"""The catalog: its models and software, and what is described by a name."""

from __future__ import annotations

import csv
import re
import tomllib
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import autotuner.catalog
from autotuner.catalog.facts import read_tables
from autotuner.catalog.hardware import load_accelerator, load_cluster, load_link
from autotuner.catalog.models import load_model, model_called, model_like, models
from autotuner.catalog.named import cluster_described, model_described
from autotuner.catalog.networks import load_preset, network_presets
from autotuner.catalog.software import StackProfile, load_stack, stack_profiles, stacks
from autotuner.core.choices import Precision
from autotuner.core.cluster import Cluster
from autotuner.core.codec import to_plain
from autotuner.core.errors import InvalidInput, NotFound
from autotuner.core.job import JobPhase
from autotuner.core.lines import read_lengths, read_links, read_phases, written_lengths, written_links
from autotuner.core.link import LinkHealth
from autotuner.core.model import TransformerSpec
from autotuner.core.stack import Stack
from autotuner.core.workload import LengthDistribution
from tests.builders import cpu_cluster, tiny_model
from tests.cases import each
from tests.unit.test_batches import wikipedia


# ---------------------------------------------------------------- catalog
@pytest.mark.parametrize(
    "file", sorted(Path(autotuner.catalog.__file__).parent.glob("*.toml")), ids=lambda file: file.name
)
def test_tables_that_are_parsed_one_by_one_are_those_of_the_whole_file(file: Path) -> None:
    whole, tables = tomllib.loads(file.read_text(encoding="utf-8")), read_tables(file.name)
    assert (list(tables), dict(tables)) == (list(whole), whole)
    assert "no such table" not in tables
    assert tables.get("no such table") is None


# ---------------------------------------------------------------- Names of the catalog, in any table
def test_names_are_read_in_any_case_and_unknown_ones_come_back_with_the_nearest() -> None:
    assert load_model("Llama-3-70B") == load_model("llama-3-70b")
    assert load_stack("Megatron") == load_stack("megatron")
    assert load_link("NVLink4") == load_link("nvlink4")
    with pytest.raises(NotFound) as caught:
        load_accelerator("h10")
    assert (caught.value.kind, caught.value.key, caught.value.nearest) == ("accelerator", "h10", "h100")
    with pytest.raises(NotFound) as caught:
        load_model("llama3-70b")
    assert caught.value.nearest == "llama-3-70b"
    with pytest.raises(NotFound):
        load_cluster("tpu:8")
    with pytest.raises(NotFound) as caught:
        load_link("nvlink")
    assert (caught.value.kind, caught.value.nearest) == ("link", "nvlink5")
    with pytest.raises(NotFound) as caught:
        load_stack("megatron-lm")
    assert (caught.value.kind, caught.value.nearest) == ("stack", "megatron")
    with pytest.raises(NotFound, match="fat-tree"):
        load_preset("fat-tree-3to1")


# ---------------------------------------------------------------- Networks by name
def test_presets_join_the_nodes_of_a_cluster_with_the_sizes_that_their_sources_state() -> None:
    for preset in network_presets():
        assert load_cluster(f"h100:512@{preset.name}").network == preset.joining(64)
        assert len(preset.source) > 20
        assert preset.date[:2] == "20"
        assert not preset.meaning.endswith(".")
    pod = load_preset("llama3-roce").joining(2048).tiers[1]
    assert (pod.nodes_per_switch * 8, pod.oversubscription) == (3072, 7.0)
    assert load_preset("alibaba-hpn").joining(64).tiers[0].nodes_per_switch * 8 == 1024
    assert load_preset("dgx-superpod").joining(64).num_rails == 8
    assert load_preset("torus-3d").joining(64).torus == (4, 4, 4)
    assert load_preset("torus-2d").joining(1).torus == ()
    with pytest.raises(InvalidInput, match=r"num_nodes = 7: .* torus-2d .*; nearest legal value: 6"):
        load_preset("torus-2d").joining(7)
    cluster = load_cluster("gb200:144@nvl72")
    assert cluster.network == load_preset("nvl72").joining(36)
    assert cluster.nvlink_domain == 72
    assert load_cluster("h100:64").network is None


# ---------------------------------------------------------------- Training software by name, and its origin
def test_every_stack_can_be_built_and_names_its_framework_and_all_but_the_unknown_one_versions_and_a_date() -> None:
    profiles = stack_profiles()
    assert tuple(profile.name for profile in profiles) == stacks()
    assert all(profile.framework for profile in profiles)
    assert [profile.name for profile in profiles if not (profile.versions and profile.date)] == ["typical"]
    with pytest.raises(InvalidInput):
        StackProfile(name="mine", framework="mine", left_out_error=-0.1)
    assert load_stack("torch").keeps_receive_buffers == Stack().keeps_receive_buffers
    assert not load_stack("torch").blocks_sends


# ---------------------------------------------------------------- text
PHASE_LINES = {
    "main: 75 %": JobPhase(name="main", token_share=0.75),
    "long: 5%; seq_len 131072; batch 64": JobPhase(name="long", token_share=0.05, seq_len=131072, global_batch_size=64),
    "thin: 12.5 %; bandwidth=10gbit": JobPhase(name="thin", token_share=0.125, bandwidth_bytes_per_s=1.25e9),
    "cool down: 7.5 %; precision bf16": JobPhase(name="cool down", token_share=0.075, precision=Precision.BF16),
}


@pytest.mark.parametrize("line", PHASE_LINES)
def test_a_line_says_a_phase_and_what_changes_in_it(line: str) -> None:
    assert read_phases(line) == (PHASE_LINES[line],)


def test_written_links_are_read_back_in_lines_where_these_suffice() -> None:
    links = tuple(LINK_LINES.values())
    assert read_links(written_links(links)) == links
    assert len(written_links(links).splitlines()) == len(links)


def test_lines_may_be_parted_by_bars_and_remarks_are_left_out() -> None:
    assert [phase.name for phase in read_phases("# a plan\nmain: 90 % | last: 10 %  # anneal\n\n")] == ["main", "last"]
    assert len(read_links("# this week\n2_3; 0.06 | 0_1; dead\n\n")) == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("main", "must be a line of the form NAME: SHARE %"),
        ("main: 75", "must be a line of the form NAME: SHARE %"),
        ("main: 75 %; batch", "has a change 'batch', which must be one of"),
        ("main: 75 %; batches 5", "nearest legal value: batch"),
        ("main: 75 %; batch x", "must be a whole number below"),
        (
            "main: 75 %; bandwidth dead",
            "has bandwidth 'dead', which must be a number of bits per second with its unit, for example 10gbit",
        ),
        ("main: 75 %; precision bf15", "nearest legal value: bf16"),
        ("main: 175 %", "must be from 0 to 1"),
        ("[1]", "must be an object"),
        ("[", "must be lines of text, or JSON"),
        ('[{"nam": "x"}]', "nam"),
    ],
)
def test_a_line_that_is_not_a_phase_is_refused_with_the_rule(text: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(said)):
        read_phases(text)


def test_lengths_are_counted_ones_a_histogram_of_ranges_or_json() -> None:
    assert read_lengths("512\n96\n512\n") == LengthDistribution.of([96, 512, 512])
    assert read_lengths("2-4") == LengthDistribution.of([2, 3, 4])
    said = read_lengths("1-4:6, 4:0.5  # of a corpus\n8")
    assert said == LengthDistribution(lengths=(1, 2, 3, 4, 8), weights=(1.5, 1.5, 1.5, 2.0, 1.0))
    assert read_lengths('{"lengths": [16, 64], "weights": [1, 3]}').weights == (1, 3)
    assert written_lengths(LengthDistribution.of([2, 3, 4, 9, 9])) == "2-4:3, 9:2"
    assert len(written_lengths(wikipedia())) < 80


@given(st.dictionaries(st.integers(1, 50), st.floats(1e-3, 1e3), min_size=1))
def test_a_written_configuration_is_read_back(weights: dict[int, float]) -> None:
    rising = sorted(weights)
    lengths = LengthDistribution(lengths=tuple(rising), weights=tuple(weights[length] for length in rising))
    assert read_lengths(written_lengths(lengths)) == lengths


@pytest.mark.parametrize("text", ["", "# nothing", "many", "0", "4-2", "16:much", "16:-1", "{", '{"lengths": [2]}'])
def test_a_text_without_lengths_is_refused_with_the_text(text: str) -> None:
    with pytest.raises(InvalidInput):
        read_lengths(text)


LINK_LINES = {
    "2_3; 0.06": LinkHealth(ends=(2, 3), delay_s=0.06),
    "3_2;0.06; 200mbit": LinkHealth(ends=(2, 3), delay_s=0.06, bandwidth_bytes_per_s=25e6),
    "0_1; dead": LinkHealth(ends=(0, 1), is_dead=True),
    "inter-node; 0.002": LinkHealth(link_class="inter_node", delay_s=0.002),
}


@pytest.mark.parametrize("line", LINK_LINES)
def test_a_line_names_a_link_and_its_state(line: str) -> None:
    assert read_links(line) == (LINK_LINES[line],)


def test_links_that_lines_cannot_say_are_written_as_json() -> None:
    links = (LinkHealth(ends=(0, 1), delay_s=0.1, jitter_s=0.02, source="measured"),)
    assert written_links(links).startswith("[")
    assert read_links(written_links(links)) == links


@pytest.mark.parametrize("text", ["2_3", "x; 1", "2_3; slow", "2_3,3_4; 0.1", "3_3; 1", "[1]", "[", '[{"end": 1}]'])
def test_a_text_that_names_no_link_is_refused_with_the_text(text: str) -> None:
    with pytest.raises(InvalidInput):
        read_links(text)


# ---------------------------------------------------------------- models
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


@each(
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


# ---------------------------------------------------------------- named
def test_a_complete_document_is_read_unchanged() -> None:
    assert model_described(to_plain(tiny_model())) == tiny_model()
    assert cluster_described(to_plain(cpu_cluster())) == cpu_cluster()


def test_a_model_or_part_of_the_catalog_with_changed_fields_is_that_but_for_these_and_not_called_like_it() -> None:
    base = load_model("llama-3-8b")
    assert model_described({"base": "llama-3-8b", "num_layers": 16}, "mine") == replace(
        base, name="mine", num_layers=16
    )
    base = load_model("mixtral-8x7b")
    assert base.experts is not None
    changed = model_described({"base": "mixtral-8x7b", "experts": {"experts_per_token": 4}})
    assert changed.experts == replace(base.experts, experts_per_token=4)
    assert model_described({"base": "mixtral-8x7b", "experts": None}).experts is None
    assert model_described({"base": "llama-3-8b", "num_layers": 16}).name == "llama-3-8b (changed)"
    assert cluster_described({"base": "h100:8", "oversubscription": 2.0}).name == "h100:8 (changed)"


def test_a_config_json_is_read_by_the_same_function() -> None:
    config = {
        "model_type": "gpt2",
        "n_layer": 12,
        "n_embd": 768,
        "n_head": 12,
        "n_positions": 1024,
        "vocab_size": 50257,
    }
    assert model_described(config, "mine").num_parameters == 124_439_808
    assert model_described(config | {"_name_or_path": "openai/gpt2/"}).name == "gpt2"
    assert model_described(config).name == "gpt2"


def test_a_cluster_of_named_accelerators_and_links_has_what_is_usual_around_them() -> None:
    usual = load_cluster("h100:32")
    written = {"accelerator": "h100", "num_nodes": 4, "inter_node_link": "ndr200"}
    expected = replace(usual, name="mine", inter_node_link=load_link("ndr200"))
    assert cluster_described(written, "mine") == expected
    assert cluster_described({"accelerator": "h100"}).world_size == 8
    assert cluster_described(written | {"accelerators_per_node": 4}).world_size == 16
    assert cluster_described({"accelerator": "gb200", "num_nodes": 32}).nvlink_domain == 72


def test_a_part_of_a_cluster_starts_from_a_name_or_from_what_is_usual_and_changes_fields() -> None:
    written = {"accelerator": {"base": "h100", "memory_bytes": 64 * 10**9}, "num_nodes": 2}
    cluster = cluster_described(written | {"intra_node_link": {"base": "nvlink3", "efficiency": 0.5}})
    assert cluster.accelerator == replace(load_accelerator("h100"), memory_bytes=64 * 10**9)
    assert cluster.intra_node_link == replace(load_link("nvlink3"), efficiency=0.5)
    cluster = cluster_described({"accelerator": "h100", "num_nodes": 2, "inter_node_link": {"efficiency": 0.6}})
    assert cluster.inter_node_link == replace(load_link("ndr400"), efficiency=0.6)


@pytest.mark.parametrize(
    ("document", "nearest"),
    [
        ({"accelerator": "h10", "num_nodes": 4}, "h100"),
        ({"accelerator": "h100", "num_nodes": 4, "inter_node_link": "ndr40"}, "ndr400"),
        ({"base": "h10:8"}, "h100"),
    ],
)
def test_a_name_that_the_catalog_lacks_is_reported_with_the_nearest(document: dict[str, Any], nearest: str) -> None:
    with pytest.raises(NotFound) as caught:
        cluster_described(document)
    assert caught.value.nearest == nearest


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"accelerator": "h100", "num_nodes": 0}, "cluster.num_nodes"),
        ({"accelerator": "h100", "nodes": 4}, "cluster.nodes"),
        ({"accelerator": "h100", "num_nodes": "4"}, "cluster.num_nodes"),
        ({"accelerator": {"base": "h100", "memory": 1}, "num_nodes": 4}, "cluster.accelerator.memory"),
        ({"num_nodes": 4}, "cluster.name"),
        ({"base": 7}, "base"),
        ([], "cluster"),
    ],
)
def test_a_value_of_the_wrong_form_is_refused_with_its_path(document: object, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        cluster_described(document)
    assert caught.value.field == field


SOMETHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from(("h100", "h100:8", "ndr400", "llama-3-8b", "h100:x", "", "h100:99999999x99999999"))
FIELDS = (
    "base",
    "accelerator",
    "num_nodes",
    "accelerators_per_node",
    "inter_node_link",
    "name",
    "experts",
    "num_layers",
)
WRITTEN = st.dictionaries(
    st.sampled_from(FIELDS), NAMES | SOMETHING | st.dictionaries(st.sampled_from(FIELDS), NAMES | SOMETHING), max_size=5
)


@given(SOMETHING | WRITTEN)
def test_any_json_is_a_model_and_a_cluster_or_refused(document: Any) -> None:
    with suppress(InvalidInput, NotFound):
        assert isinstance(model_described(document), TransformerSpec)
    with suppress(InvalidInput, NotFound):
        assert isinstance(cluster_described(document), Cluster)


def test_a_cluster_names_its_network_whose_changes_give_it_another_name() -> None:
    named = cluster_described({"accelerator": "h100", "num_nodes": 8, "network": "torus-3d"})
    assert named.network == load_preset("torus-3d").joining(8)
    changed = cluster_described({"base": "h100:64@fat-tree-2to1", "network": {"num_rails": 8}})
    assert changed.network == replace(load_preset("fat-tree-2to1").joining(8), num_rails=8)
    assert cluster_described({"base": "h100:64@fat-tree-2to1", "network": None}).network is None
    pod = {"accelerator": "h100", "num_nodes": 8, "network": {"base": "dgx-superpod", "adds": False}}
    expected = replace(load_preset("dgx-superpod").joining(8), name="dgx-superpod (changed)", adds=False)
    assert cluster_described(pod).network == expected
    written: dict[str, Any] = {"accelerator": "b200", "num_nodes": 18, "accelerators_per_node": 4, "network": "nvl72"}
    assert cluster_described(written).nvlink_domain == 72
    assert cluster_described(written | {"nvlink_domain": 36}).nvlink_domain == 36
