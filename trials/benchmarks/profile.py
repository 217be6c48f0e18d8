"""``python -m trials.benchmarks.profile``: a ``ProfileRequest`` from standard input, ``Measurements`` to its output.

Every rank measures at once, each on its own core or device, because that is how training uses them.
"""

from __future__ import annotations

import multiprocessing
import platform
import sys
import tempfile
import traceback
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import torch
from torch.distributed import FileStore  # type: ignore[attr-defined]  # exported, but not by name

from autotuner.core.profile import Measurements, ProfileRequest
from autotuner.host.machine import cpu_name, host_hash
from trials.benchmarks.microbenchmarks import (
    Bench,
    Sizes,
    attention_points,
    collective_points,
    gemm_points,
    launch_s,
    peers_within,
    traffic_points,
)
from trials.benchmarks.pairs import PairSizes, link_points
from trials.benchmarks.passes import pass_points
from trials.measurement.environment import own_core, pin
from trials.runtime.process import die_with_parent, serve_one
from trials.runtime.rank import RankInfo, barrier, device_of, join_process_group

_TIMEOUT_S = 120.0
_BUDGET_S = 0.05
"""Time for one point: enough for dozens of calls of what takes a millisecond."""
_QUICK_BUDGET_S = 0.005
_NUM_BATCHES = 3
"""Of passes, four in each, of every kind of layer."""


def measure(request: ProfileRequest) -> Measurements:
    """The points of this machine, as rank 0 saw them while all ranks measured.

    Raises:
        ChildProcessError: A rank died; its traceback is on standard error.
    """
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    with tempfile.TemporaryDirectory(prefix="autotuner-profile-") as folder:
        rank_infos = [
            RankInfo(rank=rank, world_size=request.num_ranks, local_rank=rank, local_world_size=request.num_ranks)
            for rank in range(request.num_ranks)
        ]
        ranks = [
            context.Process(target=_rank, args=(request, rank_info, Path(folder), sender)) for rank_info in rank_infos
        ]
        for rank in ranks:
            rank.start()
        sender.close()  # so that ranks that die leave nobody who could still write
        try:
            answer: Measurements = receiver.recv()
        except EOFError as error:
            raise ChildProcessError("a rank of the profile died") from error
        finally:
            for rank in ranks:
                rank.join()
    return answer


def _rank(request: ProfileRequest, rank_info: RankInfo, folder: Path, sender: Connection) -> None:
    die_with_parent()
    try:
        measured = _measured(request, rank_info, folder)
    except Exception:
        traceback.print_exc()
        return
    if rank_info.rank == 0:
        sender.send(measured)


def _measured(request: ProfileRequest, rank_info: RankInfo, folder: Path) -> Measurements:
    device = device_of(request.device, rank_info)
    if device.type == "cpu":
        pin(own_core(rank_info))
        torch.set_num_threads(1)
    join_process_group(device, rank_info, timeout_s=_TIMEOUT_S, store=FileStore(str(folder / "store")))
    barrier(device)
    measured = _devices(request, device, rank_info) if request.wants_devices else no_measurements(device)
    if not request.wants_links:
        return measured
    return replace(measured, links=link_points(PairSizes.of(device, quick=request.quick), device, rank_info))


def _devices(request: ProfileRequest, device: torch.device, rank_info: RankInfo) -> Measurements:
    """All but links one by one."""
    measured = device_measurements(request, device)
    bench, sizes = bench_of(request, device), Sizes.of(device, quick=request.quick)
    # the first of them waits for all ranks
    collectives = tuple(collective_points(bench, sizes, peers_within(device, rank_info.local_world_size)))
    passes = tuple(pass_points(device, rank_info.world_size, num_batches=1 if request.quick else _NUM_BATCHES))
    return replace(measured, collectives=collectives, passes=passes)


def bench_of(request: ProfileRequest, device: torch.device) -> Bench:
    """What times calls as carefully as the request wants."""
    return Bench(device, budget_s=_QUICK_BUDGET_S if request.quick else _BUDGET_S)


def device_measurements(request: ProfileRequest, device: torch.device) -> Measurements:
    """What this rank's own device does; the others' are busy with the same."""
    bench, sizes = bench_of(request, device), Sizes.of(device, quick=request.quick)
    return Measurements(
        launch_s=launch_s(bench),
        gemm=tuple(gemm_points(bench, sizes)),
        attention=tuple(attention_points(bench, sizes)),
        traffic=tuple(traffic_points(bench, sizes)),
        collectives=(),
        environment=environment(device),
    )


def no_measurements(device: torch.device) -> Measurements:
    """Of what machine it is, and nothing more."""
    return Measurements(
        launch_s=0.0, gemm=(), attention=(), traffic=(), collectives=(), environment=environment(device)
    )


def environment(device: torch.device) -> dict[str, str]:
    """Versions and names; the host's only as a hash, which tells machines apart and names none."""
    facts = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "host": host_hash(),
    }
    if device.type == "cuda":
        return {**facts, "device": torch.cuda.get_device_name(device), "cuda": str(torch.version.cuda)}
    return {**facts, "device": cpu_name()}


def main() -> int:
    """Answer the request on standard input; 2 where it cannot be read."""
    torch.set_num_threads(1)  # before any operation: a forked process must not inherit a thread pool
    return serve_one(ProfileRequest, measure)


if __name__ == "__main__":
    sys.exit(main())
