"""Measures the rates of devices and links on this machine or on the nodes of a job.

It runs as ``python -m autotuner.trials.benchmarks.profile``.

Alone, it reads a ``ProfileRequest`` from standard input, forks a rank for each core or device, and writes
``Measurements`` to standard output. With ``--spec`` and ``--reports``, it is one rank of a job of several nodes, which
adds the measurements of all ranks to the reports.

All ranks measure at once, because training uses the machine in this way. First, each rank measures its own device. Then
they measure collectives: among the ranks of a node, among the ranks with the same number on all nodes, whose messages
only use the network, and among all ranks. Finally, the links between pairs of ends are measured one by one (``pairs``).
"""

from __future__ import annotations

import argparse
import faulthandler
import multiprocessing
import os
import platform
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import torch
from torch.distributed import FileStore  # type: ignore[attr-defined]  # exported, but not by name

from autotuner.core import codec
from autotuner.core.errors import InvalidInput
from autotuner.core.profile import CollectivePoint, Measurements, PassPoint, ProfileRequest
from autotuner.host.machine_facts import cpu_name, host_hash
from autotuner.trials.benchmarks.microbenchmarks import (
    Bench,
    Sizes,
    attention_points,
    collective_points,
    gemm_points,
    launch_s,
    peers_across,
    peers_within,
    traffic_points,
)
from autotuner.trials.benchmarks.pairs import PairSizes, link_points
from autotuner.trials.benchmarks.passes import pass_points
from autotuner.trials.measurement.environment import own_core, pin
from autotuner.trials.processes import die_with_parent, serve_one
from autotuner.trials.rank import RankInfo, Reporter, barrier, device_of, join_process_group

_TIMEOUT_S = 120.0
_BUDGET_S = 0.05
"""Seconds for one measured point: enough for dozens of calls that take a millisecond each."""
_QUICK_BUDGET_S = 0.005
_NUM_BATCHES = 3
"""Number of batches that are timed for every kind of layer; each has four passes."""


def measure(request: ProfileRequest) -> Measurements:
    """Fork one process for each rank on this machine, run the benchmarks in all of them, and return rank 0's results.

    Args:
        request: The number of ranks, and whether devices, links or both are measured.

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
            context.Process(target=_forked_rank, args=(request, rank_info, Path(folder), sender))
            for rank_info in rank_infos
        ]
        for rank in ranks:
            rank.start()
        sender.close()  # so that the pipe closes when the ranks have died
        try:
            answer: Measurements = receiver.recv()
        except EOFError as error:
            raise ChildProcessError("a rank of the job that measures the devices ended with an error") from error
        finally:
            for rank in ranks:
                rank.join()
    return answer


def _forked_rank(request: ProfileRequest, rank_info: RankInfo, folder: Path, sender: Connection) -> None:
    die_with_parent()
    try:
        measured = measure_rank(request, rank_info, store=FileStore(str(folder / "store")))
    except Exception:
        traceback.print_exc()
        return
    if rank_info.rank == 0:
        sender.send(measured)


def measure_rank(
    request: ProfileRequest,
    rank_info: RankInfo,
    *,
    store: FileStore | None = None,
    hear: Callable[[CollectivePoint], None] = lambda point: None,
) -> Measurements:
    """Run the benchmarks as one of the ranks, and return the results of this rank.

    Args:
        request: What to measure.
        rank_info: This rank's place in the job.
        store: The store through which forked ranks find each other; None: torchrun's variables name the address.
        hear: Function that is called with each measured collective.

    Raises:
        InvalidInput: The number of ranks of the job differs from the number in the request.
    """
    if rank_info.world_size != request.num_ranks:
        raise InvalidInput(
            "num_ranks", request.num_ranks, "must be the number of ranks of the job", rank_info.world_size
        )
    device = device_of(request.device, rank_info)
    if device.type == "cpu":
        pin(own_core(rank_info))
        torch.set_num_threads(1)
    join_process_group(device, rank_info, timeout_s=_TIMEOUT_S, store=store)
    barrier(device)
    measured = Measurements(
        launch_s=0.0, gemm=(), attention=(), traffic=(), collectives=(), environment=environment(device)
    )
    if request.wants_devices:
        measured = _measure_devices(measured, request, device, rank_info, hear, is_alone=store is not None)
    if request.wants_links:
        measured = replace(measured, links=link_points(PairSizes.of(device, quick=request.quick), device, rank_info))
    return measured


def _measure_devices(
    measured: Measurements,
    request: ProfileRequest,
    device: torch.device,
    rank_info: RankInfo,
    hear: Callable[[CollectivePoint], None],
    *,
    is_alone: bool,
) -> Measurements:
    """Measure this rank's device while all other ranks do the same, and then the collectives among them."""
    bench = Bench(device, budget_s=_QUICK_BUDGET_S if request.quick else _BUDGET_S)
    sizes, num_local_ranks = Sizes.of(device, quick=request.quick), rank_info.local_world_size
    measured = replace(
        measured,
        launch_s=launch_s(bench),
        gemm=tuple(gemm_points(bench, sizes)),
        attention=tuple(attention_points(bench, sizes)),
        traffic=tuple(traffic_points(bench, sizes)),
    )
    barrier(device)  # a device that takes longer than others is no part of what a collective takes
    collectives = []
    peers = [*peers_within(device, num_local_ranks), *peers_across(num_local_ranks)]
    for point in collective_points(bench, sizes, peers):
        hear(point)
        collectives.append(point)
    passes: tuple[PassPoint, ...] = ()
    if is_alone:
        passes = tuple(pass_points(device, num_local_ranks, num_batches=1 if request.quick else _NUM_BATCHES))
    return replace(measured, collectives=tuple(collectives), passes=passes)


def environment(device: torch.device) -> dict[str, str]:
    """Return facts about this rank's machine: versions of software, the name of the device and a hash of the host.

    The hash of the host's name tells machines apart without revealing their names.
    """
    facts = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "host": host_hash(),
    }
    if device.type == "cuda":
        return {**facts, "device": torch.cuda.get_device_name(device), "cuda": str(torch.version.cuda)}
    return {**facts, "device": cpu_name()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the devices or links that a request names.

    With ``--spec FILE``, the file has the request, and this process is one rank of a job. Without it, the request is
    read from standard input, ranks are forked on this machine, and the result is written to standard output.

    Returns:
        The exit code, with the same meanings as for a trial.
    """
    parser = argparse.ArgumentParser(
        prog="python -m autotuner.trials.benchmarks.profile", description="Benchmark devices."
    )
    parser.add_argument("--spec", type=Path, help="a ProfileRequest as JSON; this process is one rank of a job")
    parser.add_argument("--reports", type=Path, help="file to append JSON lines to")
    paths = parser.parse_args(arguments)
    torch.set_num_threads(1)  # before any operation: a forked process must not inherit a thread pool
    if paths.spec is None:
        return serve_one(ProfileRequest, measure)
    die_with_parent(signal.SIGKILL)
    faulthandler.register(signal.SIGUSR1, all_threads=False)  # whoever gives up asks where this rank hangs
    rank_info = RankInfo.from_environment(os.environ)
    reporter = Reporter(paths.reports, rank=rank_info.rank)
    try:
        request = codec.loads(ProfileRequest, paths.spec.read_text())
        reporter.report(measure_rank(request, rank_info, hear=reporter.report))
    except Exception as error:
        reporter.failure(error)
        traceback.print_exc()
        return 2 if isinstance(error, InvalidInput) else 1
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # torch's own clean-up takes a second and has nothing left to do
