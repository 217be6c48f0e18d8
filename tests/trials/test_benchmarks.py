from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from autotuner.core.choices import AttentionKernel, Precision
from autotuner.core.codec import dumps, from_plain, loads
from autotuner.core.link import LinkPoint, link_health_of
from autotuner.core.profile import Measurements, ProfileRequest
from autotuner.launch.node_processes import free_port
from autotuner.launch.this_machine import ask_torch
from tests.patience import PATIENCE_S
from tests.trials.fork_server import ForkServer

# ---------------------------------------------------------------- links
KINDS = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send"}


def measured(folder: Path, *, num_ranks: int, ranks_per_node: int) -> tuple[list[dict[str, Any]], int]:
    """What the ranks of two nodes report, and the worse exit code of both."""
    spec, reports = folder / "spec.json", folder / "reports.jsonl"
    port = free_port()
    spec.write_text(dumps(ProfileRequest(device="cpu", num_ranks=num_ranks, quick=True, wanted="devices_and_links")))
    nodes = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--node-rank", str(node)),
                *("--nproc-per-node", str(ranks_per_node), "--master-addr", "127.0.0.1", "--master-port", str(port)),
                *("-m", "autotuner.trials.benchmarks.profile", "--spec", str(spec), "--reports", str(reports)),
            ],
            env={**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for node in range(2)
    ]
    code = max(node.wait(timeout=PATIENCE_S) for node in nodes)
    return [json.loads(line) for line in reports.read_text().splitlines()], code


@pytest.mark.oracle  # two nodes import torch, and twenty seconds of benchmarks
def test_two_nodes_of_two_cores_measure_their_devices_and_every_collective_within_and_across(tmp_path: Path) -> None:
    told, code = measured(tmp_path, num_ranks=4, ranks_per_node=2)
    assert code == 0
    assert [line["type"] for line in told] == ["collective"] * (len(told) - 1) + ["profile"]
    found = from_plain(Measurements, {key: value for key, value in told[-1].items() if key != "type"})
    assert len(found.collectives) == len(told) - 1
    groups = {(point.num_nodes, point.num_ranks) for point in found.collectives}
    assert groups == {(1, 2), (2, 2), (2, 4)}
    for group in groups:
        assert {p.kind for p in found.collectives if (p.num_nodes, p.num_ranks) == group} == KINDS
    assert all(point.seconds > 0 for points in (found.collectives, found.gemm, found.traffic) for point in points)
    assert found.environment["torch"]
    (link,) = found.links
    assert link.ends == (0, 1)
    assert link.delay_s > 0


@pytest.mark.oracle  # two nodes import torch
def test_ranks_that_are_not_those_of_the_request_refuse_it(tmp_path: Path) -> None:
    told, code = measured(tmp_path, num_ranks=4, ranks_per_node=1)
    assert code != 0
    assert all(
        line["type"] == "failure" and "must be the number of ranks of the job" in line["message"] for line in told
    )


# ---------------------------------------------------------------- profile
@pytest.mark.oracle  # ten seconds of benchmarks
def test_two_cores_measure_products_attention_memory_and_collectives() -> None:
    question = dumps(ProfileRequest(device="cpu", num_ranks=2, quick=True))
    found = loads(Measurements, ask_torch("autotuner.trials.benchmarks.profile", question, timeout_s=PATIENCE_S))
    assert {point.precision for point in found.gemm} == {Precision.FP32, Precision.BF16}
    assert {point.kernel for point in found.attention} == {AttentionKernel.MATH, AttentionKernel.FLASH}
    assert {point.operation for point in found.traffic} == {"copy", "triad"}
    kinds = {point.kind for point in found.collectives}
    assert kinds == {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send"}
    assert all(point.seconds > 0 for points in (found.gemm, found.traffic, found.collectives) for point in points)
    assert found.environment["torch"]
    assert {(point.kind, point.num_ranks) for point in found.passes} == {
        ("plain", 1),
        ("recompute_selective", 1),
        ("recompute_full", 1),
        ("sharded", 2),
        ("tensor", 2),
        ("sequence", 2),
    }
    assert all(point.forward_s > 0 and point.backward_s > 0 for point in found.passes)


@pytest.mark.oracle  # ten seconds of benchmarks
def test_a_rank_alone_measures_no_collectives() -> None:
    question = dumps(ProfileRequest(device="cpu", num_ranks=1, quick=True))
    assert (
        loads(
            Measurements, ask_torch("autotuner.trials.benchmarks.profile", question, timeout_s=PATIENCE_S)
        ).collectives
        == ()
    )


# ---------------------------------------------------------------- links one by one, of which one is late
NO_HEALTH = {"ends": [0, 0], "delay_s": 0.0, "bytes_per_s": 1e12}


def pairs(fork_server: ForkServer, folder: Path, num_nodes: int, **late: Any) -> dict[tuple[int, int], LinkPoint]:
    """What all nodes say alike of a network with such a link."""
    (folder / "late").write_text(json.dumps(NO_HEALTH | late))
    run = fork_server.have_done("tests.trials.rank_tasks:measure_pairs", folder, num_nodes)
    assert set(run.exit_codes) == {0}, run.logs
    (told,) = {(folder / f"{rank}.json").read_text() for rank in range(num_nodes)}
    return {point.ends: point for point in (from_plain(LinkPoint, one) for one in json.loads(told))}


@pytest.mark.oracle  # three nodes, each pair by itself
def test_a_link_that_delays_what_is_sent_is_late_by_as_much_and_the_others_are_not(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    points = pairs(fork_server, tmp_path, 3, ends=[1, 2], delay_s=0.03)
    assert set(points) == {(0, 1), (0, 2), (1, 2)}
    assert 0.03 <= points[1, 2].delay_s < 0.06
    assert max(points[0, 1].delay_s, points[0, 2].delay_s) < 0.03
    health = link_health_of(list(points.values()), bandwidth_bytes_per_s=1e9, source="measured")
    (late,) = (each for each in health if each.delay_s)
    assert late.ends == (1, 2)
    assert late.delay_s == pytest.approx(0.03, rel=0.5)


@pytest.mark.oracle  # three nodes, each pair by itself
def test_a_link_that_passes_little_is_narrow(fork_server: ForkServer, tmp_path: Path) -> None:
    points = pairs(fork_server, tmp_path, 3, ends=[0, 1], bytes_per_s=2e6)
    health = link_health_of(list(points.values()), bandwidth_bytes_per_s=1e9, source="measured")
    assert ({each.ends: each for each in health}[0, 1].bandwidth_bytes_per_s or 1e9) < 0.5e9
    assert points[0, 1].bandwidth_bytes_per_s == pytest.approx(2e6, rel=0.5)


def test_a_rank_alone_has_no_link(fork_server: ForkServer, tmp_path: Path) -> None:
    assert pairs(fork_server, tmp_path, 1) == {}
