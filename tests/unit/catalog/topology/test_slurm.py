"""Slurm's ``topology.conf`` and ``topology.yaml``."""

from __future__ import annotations

import pytest

from autotuner.catalog.topology.slurm import names_of, read_slurm_conf, read_slurm_yaml
from autotuner.catalog.topology.topology import Topology
from autotuner.core.errors import InvalidInput
from tests.unit.catalog.topology.published import HYPERPOD_YAML, SLURM_BLOCKS, SLURM_TREE, SOPERATOR_YAML


def _sizes(topology: Topology) -> list[tuple[str, int]]:
    assert topology.network is not None
    return [(tier.name, tier.nodes_per_switch) for tier in topology.network.tiers]


def test_switches_are_tiers_from_those_that_nodes_are_plugged_into() -> None:
    topology = read_slurm_conf(SLURM_TREE)
    assert _sizes(topology) == [("leaf", 6), ("spine", 18)]
    assert topology.nodes == tuple(f"dev{number}" for number in range(18))
    assert "not told" in topology.notes[0]


def test_blocks_are_tiers_of_the_sizes_that_are_planned() -> None:
    topology = read_slurm_conf(SLURM_BLOCKS)
    assert _sizes(topology) == [("block", 18), ("4 blocks", 72)]
    assert (topology.nodes[0], topology.nodes[-1]) == ("node01", "node72")


def test_a_block_with_spare_nodes_counts_all_of_them() -> None:
    assert _sizes(read_slurm_conf("BlockName=b Nodes=n[1-18]\nBlockSizes=16,32")) == [("block", 18), ("2 blocks", 36)]


def test_switches_of_one_tier_are_taken_to_be_as_large_as_the_largest() -> None:
    topology = read_slurm_conf("SwitchName=a Nodes=n[0-3]\nSwitchName=b Nodes=n[4-5]\nSwitchName=c Switches=a,b")
    assert _sizes(topology) == [("leaf", 4), ("spine", 8)]
    assert "2 to 4 nodes" in topology.notes[1]


def test_nodes_follow_each_other_switch_by_switch() -> None:
    text = "SwitchName=a Nodes=n[0,2]\nSwitchName=b Nodes=n[1,3]\nSwitchName=c Switches=b,a LinkSpeed=5"
    assert read_slurm_conf(text).nodes == ("n1", "n3", "n0", "n2")


def test_the_default_topology_of_a_yaml_file_is_read() -> None:
    assert _sizes(read_slurm_yaml(HYPERPOD_YAML)) == [("leaf", 2), ("spine", 4)]
    several = read_slurm_yaml(SOPERATOR_YAML)
    assert several.network is not None
    assert several.network.name == "eth-cpu"
    assert several.notes[-1].endswith("ib-gpu")
    blocks = read_slurm_yaml(SOPERATOR_YAML.replace("default: true", "default: false"))
    assert _sizes(blocks) == [("block", 8), ("2 blocks", 16)]


def test_a_flat_topology_is_one_switch() -> None:
    network = read_slurm_yaml("- topology: plain\n  flat: true\n").network
    assert network is not None
    assert network.tiers == ()


def test_host_lists_keep_their_zeros_and_take_several_brackets() -> None:
    assert names_of("n[08-10],login1", "line 1") == ("n08", "n09", "n10", "login1")
    assert names_of("r[0-1]n[0,2]", "line 1") == ("r0n0", "r0n2", "r1n0", "r1n2")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("SwitchName=s0 Node=x", "line 1 = 'Node=x': .* nearest legal value: Nodes"),
        ("SwitchName=s0 Nodes=x\n\nSwitchName=s0 Nodes=y", "line 3 = 's0': must be named once; line 1"),
        ("SwitchName=s0 Nodes=x\nSwitchName=s1 Nodes=x", "line 2 = 'x': must be plugged into one switch; line 1"),
        ("SwitchName=s0 Switches=leef\nSwitchName=leaf Nodes=x", "line 1 = 'leef': .* nearest legal value: leaf"),
        ("SwitchName=a Switches=b\nSwitchName=b Switches=a", "must not lie below itself"),
        ("SwitchName=a Nodes=n[3-1]", r"line 1 = '3-1': must rise, .* nearest legal value: 1-3"),
        ("SwitchName=a Nodes=n[0-999999999]", "by less than 200,000"),
        ("SwitchName=a Nodes=n[0-999]m[0-999]", "200,000 names at most"),
        ("BlockName=b Nodes=n[0-3]\nBlockSizes=4,6", "block_sizes = 6: must be a multiple of the first, 4"),
        ("BlockName=b Nodes=n0\nSwitchName=s Nodes=n1", "must not be in one file with switches"),
        ("SwitchName=a Nodes=x \\\n", None),
    ],
)
def test_a_conf_file_that_slurm_would_refuse_is_refused_with_its_line(text: str, told: str | None) -> None:
    if told is None:
        assert read_slurm_conf(text).nodes == ("x",)
        return
    with pytest.raises(InvalidInput, match=told):
        read_slurm_conf(text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            HYPERPOD_YAML.replace("switches:", "switch:"),
            "line 4 = .*must have switches, .* value: switches",
        ),
        (HYPERPOD_YAML.replace("  tree:", "  tre:"), r"line 1 = \['tre'\]: .* nearest legal value: tree"),
        (
            HYPERPOD_YAML.replace("nodes: compute-1", "node: compute-1"),
            "line 7 = 'node': .* nearest legal value: nodes",
        ),
        ("- topology: a\n  tree: [", "line 3 = .*must be YAML"),
        ("topology: a", "line 1 = '': must be a list"),
        ("- topology: a\n  block:\n    block_sizes: [x]\n    blocks: []", "line 3 = 'x': must be a number of nodes"),
    ],
)
def test_a_yaml_file_that_slurm_would_refuse_is_refused_with_its_line(text: str, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        read_slurm_yaml(text)
