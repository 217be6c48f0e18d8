from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import autotuner.catalog
from autotuner.catalog.facts import read_tables
from autotuner.catalog.hardware import load_accelerator, load_cluster, load_link
from autotuner.catalog.models import load_model
from autotuner.catalog.networks import load_preset, network_presets
from autotuner.catalog.software import StackProfile, load_stack, stack_profiles, stacks
from autotuner.core.choices import Precision
from autotuner.core.errors import InvalidInput, NotFound
from autotuner.core.job import JobPhase
from autotuner.core.lines import read_lengths, read_links, read_phases, written_lengths, written_links
from autotuner.core.link import LinkHealth
from autotuner.core.stack import Stack
from autotuner.core.workload import LengthDistribution
from tests.unit.batches.samsung import wikipedia


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
    with pytest.raises(InvalidInput, match=r"num_nodes = 7: .* torus-2d joins; nearest legal value: 6"):
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
        ("main", "must be name: share %"),
        ("main: 75", "must be name: share %"),
        ("main: 75 %; batch", "must be a word and a value"),
        ("main: 75 %; batches 5", "nearest legal value: batch"),
        ("main: 75 %; batch x", "must be whole"),
        ("main: 75 %; bandwidth dead", "nearest legal value: 10gbit"),
        ("main: 75 %; precision bf15", "nearest legal value: bf16"),
        ("main: 175 %", "must lie in 0..1"),
        ("[1]", "must be an object"),
        ("[", "must be lines or JSON"),
        ('[{"nam": "x"}]', "nam"),
    ],
)
def test_what_says_no_phase_is_refused_with_the_rule(text: str, said: str) -> None:
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
def test_what_is_written_reads_back(weights: dict[int, float]) -> None:
    rising = sorted(weights)
    lengths = LengthDistribution(lengths=tuple(rising), weights=tuple(weights[length] for length in rising))
    assert read_lengths(written_lengths(lengths)) == lengths


@pytest.mark.parametrize("text", ["", "# nothing", "many", "0", "4-2", "16:much", "16:-1", "{", '{"lengths": [2]}'])
def test_what_says_no_lengths_is_refused_with_its_words(text: str) -> None:
    with pytest.raises(InvalidInput):
        read_lengths(text)


LINK_LINES = {
    "2_3; 0.06": LinkHealth(ends=(2, 3), delay_s=0.06),
    "3_2;0.06; 200mbit": LinkHealth(ends=(2, 3), delay_s=0.06, bandwidth_bytes_per_s=25e6),
    "0_1; dead": LinkHealth(ends=(0, 1), is_dead=True),
    "inter-node; 0.002": LinkHealth(link_class="inter_node", delay_s=0.002),
}


@pytest.mark.parametrize("line", LINK_LINES)
def test_a_line_says_a_link_and_what_ails_it(line: str) -> None:
    assert read_links(line) == (LINK_LINES[line],)


def test_links_that_lines_cannot_say_are_written_as_json() -> None:
    links = (LinkHealth(ends=(0, 1), delay_s=0.1, jitter_s=0.02, source="measured"),)
    assert written_links(links).startswith("[")
    assert read_links(written_links(links)) == links


@pytest.mark.parametrize("text", ["2_3", "x; 1", "2_3; slow", "2_3,3_4; 0.1", "3_3; 1", "[1]", "[", '[{"end": 1}]'])
def test_what_names_no_link_is_refused_with_the_text(text: str) -> None:
    with pytest.raises(InvalidInput):
        read_links(text)
