from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from autotuner.catalog.hardware import load_accelerator
from autotuner.core.errors import InvalidInput
from autotuner.launch.local import LocalLauncher
from autotuner.launch.this_machine import detect_cluster, forget_cluster, visible_gpus
from tests.builders import cpu_cluster, h100_cluster


@pytest.fixture(autouse=True)
def detected_anew() -> Iterator[None]:
    forget_cluster()
    yield
    forget_cluster()


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A driver's command that lists what is written to the returned file, for machines without a GPU."""
    names, program = tmp_path / "names", tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\ncat '{names}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return names


@pytest.fixture
def no_driver(driver: Path) -> None:
    """A driver that finds no device, as after its removal."""
    driver.write_text("")


@pytest.mark.usefixtures("no_driver")
def test_a_machine_without_gpus_is_its_cores_with_their_measured_rate() -> None:
    cluster = detect_cluster()
    assert (cluster.name, cluster.accelerator.kind) == ("local", "cpu")
    assert cluster.world_size == len(os.sched_getaffinity(0))
    assert cluster.accelerator.peak_is_measured
    assert cluster.accelerator.fp32_flop_per_s > 1e9  # the slowest core of this century multiplies faster
    assert "measured" in cluster.accelerator.peak_source


def test_a_machine_with_gpus_is_a_node_of_them_as_the_catalog_knows_them(driver: Path) -> None:
    driver.write_text("NVIDIA H200\n" * 8)
    cluster = detect_cluster()
    assert (cluster.num_nodes, cluster.accelerators_per_node) == (1, 8)
    assert cluster.accelerator == load_accelerator("h200")


def test_a_gpu_that_the_catalog_does_not_know_is_named_with_the_nearest_it_knows(driver: Path) -> None:
    driver.write_text("NVIDIA H300\n")
    with pytest.raises(InvalidInput, match="H300") as refusal:
        detect_cluster()
    assert refusal.value.nearest in ("NVIDIA H200", "NVIDIA H100 PCIe")


def test_the_local_launcher_refuses_more_gpus_than_the_machine_has(driver: Path, tmp_path: Path) -> None:
    driver.write_text("NVIDIA H100 80GB HBM3\n" * 8)
    launcher = LocalLauncher(tmp_path)
    assert launcher.refuses(h100_cluster(num_nodes=1)) is None
    refusal = launcher.refuses(h100_cluster(num_nodes=2))
    assert refusal is not None
    assert "16 GPUs" in refusal
    assert "has 8" in refusal


@pytest.mark.usefixtures("no_driver")
def test_the_local_launcher_lets_ranks_share_cores(tmp_path: Path) -> None:
    assert LocalLauncher(tmp_path).refuses(cpu_cluster(64)) is None


@pytest.mark.parametrize(("num_gpus", "num_nodes", "room"), [(16, 1, 2), (16, 2, 1), (8, 2, 1)])
def test_the_local_launcher_has_room_for_as_many_trials_as_find_gpus_of_their_own(
    driver: Path, tmp_path: Path, num_gpus: int, num_nodes: int, room: int
) -> None:
    driver.write_text("NVIDIA H100 80GB HBM3\n" * num_gpus)
    assert LocalLauncher(tmp_path).capacity(h100_cluster(num_nodes=num_nodes)) == room


@pytest.mark.parametrize(
    ("variable", "visible"),
    [(None, "0123"), ("2,3", "23"), ("1,-1,2", "1"), ("", ""), ("GPU-8ae3,0", ["GPU-8ae3", "0"])],
)
def test_gpus_that_the_environment_hides_are_not_used(
    driver: Path, monkeypatch: pytest.MonkeyPatch, variable: str | None, visible: Sequence[str]
) -> None:
    driver.write_text("NVIDIA H100 80GB HBM3\n" * 4)
    if variable is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    assert visible_gpus() == tuple(visible)
    if visible:
        assert detect_cluster().accelerators_per_node == len(visible)


@pytest.mark.usefixtures("no_driver")
def test_who_asks_while_the_cores_are_measured_waits_for_that_measurement() -> None:
    with ThreadPoolExecutor(6) as threads:
        clusters = list(threads.map(lambda _: detect_cluster(), range(6)))
    assert len({cluster.accelerator.fp32_flop_per_s for cluster in clusters}) == 1
