"""Links measured one by one between nodes whose network is late on one of them."""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch
from torch.distributed import FileStore  # type: ignore[attr-defined]  # exported, but not by name

from autotuner.core.link import LinkHealth, LinkPoint, link_health_of
from tests.patience import PATIENCE_S
from tests.trials.benchmarks.network import Network, enter
from trials.benchmarks.pairs import PairSizes, link_points
from trials.runtime.rank import RankInfo, join_process_group

CPU = torch.device("cpu")
SIZES = PairSizes(fewest=5, most=20, budget_s=0.1, long_bytes=2**20)


def node(rank: int, num_nodes: int, folder: Path, network: Network, answer: Connection) -> None:
    """One rank, alone on its node."""
    enter(rank, network.joining)
    torch.set_num_threads(1)
    rank_info = RankInfo(rank=rank, world_size=num_nodes, local_rank=0, local_world_size=1)
    store = FileStore(str(folder / "store"), num_nodes)
    join_process_group(CPU, rank_info, timeout_s=PATIENCE_S, store=store)
    answer.send((rank, link_points(SIZES, CPU, rank_info)))


def measured(num_nodes: int, folder: Path, *health: LinkHealth) -> tuple[LinkPoint, ...]:
    """What all nodes say of a network with such links."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    network = Network(num_nodes, health)
    nodes = [context.Process(target=node, args=(rank, num_nodes, folder, network, sender)) for rank in range(num_nodes)]
    for process in nodes:  # before the network's thread, of which a child would have a part
        process.start()
    with network:
        found = dict(receiver.recv() for _ in nodes if receiver.poll(90.0))
        for process in nodes:
            process.join(PATIENCE_S)
    assert len(found) == num_nodes, [process.exitcode for process in nodes]
    assert len(set(found.values())) == 1, "all ranks know the same"
    points: tuple[LinkPoint, ...] = found[0]
    return points


@pytest.mark.oracle  # three nodes, in namespaces of their own
def test_a_link_that_delays_its_frames_is_late_by_as_much_and_the_others_are_not(tmp_path: Path) -> None:
    points = {point.ends: point for point in measured(3, tmp_path, LinkHealth(ends=(1, 2), delay_s=0.03))}
    assert set(points) == {(0, 1), (0, 2), (1, 2)}
    assert 0.03 <= points[1, 2].delay_s < 0.06
    assert max(points[0, 1].delay_s, points[0, 2].delay_s) < 0.03
    health = link_health_of(list(points.values()), bandwidth_bytes_per_s=1e9, source="measured")
    (late,) = (each for each in health if each.delay_s)
    assert late.ends == (1, 2)
    assert late.delay_s == pytest.approx(0.03, rel=0.5)


@pytest.mark.oracle  # three nodes, in namespaces of their own
def test_a_link_that_passes_little_is_narrow(tmp_path: Path) -> None:
    points = measured(3, tmp_path, LinkHealth(ends=(0, 1), bandwidth_bytes_per_s=2e6))
    health = {each.ends: each for each in link_health_of(points, bandwidth_bytes_per_s=1e9, source="measured")}
    assert (health[0, 1].bandwidth_bytes_per_s or 1e9) < 0.5e9
    (narrow,) = (point for point in points if point.ends == (0, 1))
    assert narrow.bandwidth_bytes_per_s == pytest.approx(2e6, rel=0.5)


def test_a_rank_alone_has_no_link(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    alone = context.Process(target=_alone, args=(tmp_path, sender))
    alone.start()
    assert receiver.poll(60.0)
    assert receiver.recv() == ()
    alone.join(PATIENCE_S)


def _alone(folder: Path, answer: Connection) -> None:
    join_process_group(CPU, RankInfo(), timeout_s=PATIENCE_S, store=FileStore(str(folder / "store"), 1))
    answer.send(link_points(SIZES, CPU, RankInfo()))
