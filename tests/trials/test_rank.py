from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from autotuner.core import codec
from autotuner.core.choices import RankPlacement
from autotuner.core.errors import InvalidInput
from autotuner.core.measurement import Measurement, StepReport
from autotuner.core.placement import Nodes
from autotuner.core.trial import FailureKind
from autotuner.trials.rank import NonFiniteLoss, RankInfo, Reporter, classify, headline
from tests.builders import cpu_cluster, measurement, step_report
from tests.trials.fork_server import read_lines
from tests.trials.specs import trial_spec

# ---------------------------------------------------------------- failure
CASES: tuple[tuple[BaseException, FailureKind], ...] = (
    (MemoryError(), FailureKind.OOM),
    (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), FailureKind.OOM),
    (
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] . DefaultCPUAllocator: can't allocate memory: you tried to"),
        FailureKind.OOM,
    ),
    (RuntimeError("std::bad_alloc"), FailureKind.OOM),
    (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), FailureKind.OOM),
    (dist.DistBackendError("NCCL error in: ProcessGroupNCCL.cpp:94"), FailureKind.COMMUNICATION),
    (dist.DistNetworkError("The client socket has failed to connect"), FailureKind.COMMUNICATION),
    (RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]"), FailureKind.COMMUNICATION),
    (RuntimeError("[../gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1ms"), FailureKind.COMMUNICATION),
    (RuntimeError("Application timeout caused pair closure"), FailureKind.COMMUNICATION),
    (
        RuntimeError(
            "[enforce fail at gloo/transport/tcp/device.cc:84] ifa != nullptr. Unable to find address for: eth9"
        ),
        FailureKind.COMMUNICATION,
    ),
    (ConnectionResetError("Connection reset by peer"), FailureKind.COMMUNICATION),
    (NonFiniteLoss(3, float("nan")), FailureKind.NUMERICS),
    (InvalidInput("layout.tensor_parallel_degree", 3, "must divide"), FailureKind.CRASH),
    (ValueError("shapes do not match"), FailureKind.CRASH),
)


@pytest.mark.parametrize(("error", "kind"), CASES, ids=lambda value: repr(value)[:40])
def test_an_exception_is_classified_by_its_type_and_words(error: BaseException, kind: FailureKind) -> None:
    assert classify(error) == kind


def test_the_cause_of_an_exception_counts() -> None:
    wrapped = RuntimeError("stage 1 failed to run backward")
    wrapped.__cause__ = RuntimeError("DefaultCPUAllocator: can't allocate memory")
    assert classify(wrapped) == FailureKind.OOM


def test_a_thread_that_cannot_start_is_want_of_memory_only_where_memory_is_limited() -> None:
    error = RuntimeError("Resource temporarily unavailable")
    assert classify(error) == FailureKind.CRASH
    assert classify(error, memory_was_limited=True) == FailureKind.OOM
    assert classify(ValueError("shapes do not match"), memory_was_limited=True) == FailureKind.CRASH


def test_a_chain_that_bites_its_tail_ends() -> None:
    first, second = RuntimeError("first"), RuntimeError("second")
    first.__cause__, second.__cause__ = second, first
    assert classify(first) == FailureKind.CRASH


def test_a_headline_is_one_line_that_names_the_type() -> None:
    assert headline(RuntimeError("it  broke\nat line 3")) == "RuntimeError: it broke"
    assert headline(MemoryError()) == "MemoryError"


# ---------------------------------------------------------------- rank
def test_the_variables_of_torchrun_give_the_place_of_a_process_which_is_alone_without_them() -> None:
    rank_info = RankInfo(rank=5, world_size=8, local_rank=1, local_world_size=4)
    environment = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
    assert RankInfo.from_environment(environment) == rank_info
    assert RankInfo.from_environment(rank_info.environment()) == rank_info
    assert RankInfo.from_environment({"HOME": "/"}) == RankInfo(rank=0, world_size=1, local_rank=0, local_world_size=1)


def test_ranks_are_placed_on_the_nodes_that_torchrun_filled_one_after_the_other() -> None:
    processes = [RankInfo(rank=rank, world_size=6, local_rank=rank % 3, local_world_size=3) for rank in range(6)]
    placed = [process.placed(RankPlacement.CYCLIC) for process in processes]
    assert [one.rank for one in placed] == [0, 2, 4, 1, 3, 5]
    assert [one.local_rank for one in placed] == [0, 1, 2, 0, 1, 2]
    assert all(one.nodes(RankPlacement.CYCLIC).node_of(one.rank) == index // 3 for index, one in enumerate(placed))
    assert [one.placed(RankPlacement.BLOCK) for one in processes] == processes


def test_a_host_that_has_all_ranks_of_a_cluster_plays_its_nodes() -> None:
    process = RankInfo(rank=3, world_size=4, local_rank=3, local_world_size=4, ranks_per_node=2)
    assert process.nodes(RankPlacement.BLOCK) == Nodes(num_nodes=2, ranks_per_node=2)
    assert process.placed(RankPlacement.CYCLIC).rank == 3
    alone = RankInfo(rank=1, world_size=4, local_rank=1, local_world_size=4)
    assert alone.playing(cpu_cluster(2, num_nodes=2)).ranks_per_node == 2
    assert alone.playing(cpu_cluster(4)).nodes(RankPlacement.BLOCK).num_nodes == 1
    assert alone.playing(cpu_cluster(8)) == alone.playing(None) == alone
    one_of_two = RankInfo(rank=3, world_size=4, local_rank=1, local_world_size=2)
    assert one_of_two.playing(cpu_cluster(1, num_nodes=4)) == one_of_two


# ---------------------------------------------------------------- report
def test_steps_and_measurements_read_back_as_they_were(tmp_path: Path) -> None:
    reporter = Reporter(tmp_path / "reports.jsonl", rank=0)
    reporter.report(step_report(step=3))
    reporter.report(measurement())
    step, result = read_lines(tmp_path / "reports.jsonl")
    assert step.pop("type") == "step"
    assert codec.from_plain(StepReport, step) == step_report(step=3)
    assert result.pop("type") == "measurement"
    assert codec.from_plain(Measurement, result) == measurement()


def test_only_rank_0_reports_progress_but_every_rank_its_death(tmp_path: Path) -> None:
    for rank in (1, 0):
        reporter = Reporter(tmp_path / "reports.jsonl", rank=rank)
        reporter.started(trial_spec(), world_size=2)
        reporter.report(step_report())
        reporter.failure(MemoryError("no memory left"))
    lines = read_lines(tmp_path / "reports.jsonl")
    assert [(line["type"], line.get("rank")) for line in lines] == [
        ("failure", 1),
        ("started", None),
        ("step", None),
        ("failure", 0),
    ]


def test_lines_of_several_processes_never_mix(tmp_path: Path) -> None:
    path, num_writers, num_lines = tmp_path / "reports.jsonl", 4, 50
    writers = []
    for rank in range(num_writers):
        if (child := os.fork()) == 0:
            for number in range(num_lines):
                Reporter(path, rank=rank).failure(RuntimeError(f"{number}\n{'x' * 5000}"))
            os._exit(0)
        writers.append(child)
    assert [os.waitpid(child, 0)[1] for child in writers] == [0] * num_writers
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(lines) == num_writers * num_lines
    for rank in range(num_writers):
        words = [line["message"] for line in lines if line["rank"] == rank]
        assert words == [f"RuntimeError: {number}" for number in range(num_lines)]
