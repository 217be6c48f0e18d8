"""``python -m trials.benchmarks.links``: what devices and links of several nodes reach, as every rank of a job runs it.

The spec is a ``ProfileRequest``. All ranks measure at once, first each its own device, then collectives: among the
ranks of a node, among ranks of one number on all nodes, whose message passes nothing but the network, and among all.
Then nodes measure the links between them one by one (``pairs``).
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from autotuner.core import codec
from autotuner.core.errors import InvalidInput
from autotuner.core.profile import CollectivePoint, ProfileRequest
from trials.benchmarks.microbenchmarks import Sizes, collective_points, peers_across, peers_within
from trials.benchmarks.pairs import PairSizes, link_points
from trials.benchmarks.profile import bench_of, device_measurements, no_measurements
from trials.measurement.environment import own_core, pin
from trials.runtime.process import die_with_parent
from trials.runtime.rank import RankInfo, barrier, classify, device_of, headline, join_process_group
from trials.runtime.report import Reporter

_TIMEOUT_S = 120.0


def measure(request: ProfileRequest, reporter: Reporter, rank_info: RankInfo) -> None:
    """Report every collective as it is timed, and all that was measured at the end.

    Raises:
        InvalidInput: These are other ranks than the request is for.
    """
    if rank_info.world_size != request.num_ranks:
        raise InvalidInput("num_ranks", request.num_ranks, "must be the ranks of the job", rank_info.world_size)
    device = device_of(request.device, rank_info)
    if device.type == "cpu":
        pin(own_core(rank_info))
        torch.set_num_threads(1)
    join_process_group(device, rank_info, timeout_s=_TIMEOUT_S)
    barrier(device)
    measured = no_measurements(device)
    if request.wants_devices:
        measured = device_measurements(request, device)
        barrier(device)  # a device that takes longer than others is no part of what a collective takes
        measured = replace(measured, collectives=tuple(_reported(request, reporter, device, rank_info)))
    if request.wants_links:
        links = link_points(PairSizes.of(device, quick=request.quick), device, rank_info)
        measured = replace(measured, links=links)
    reporter.profile(measured)


def _reported(
    request: ProfileRequest, reporter: Reporter, device: torch.device, rank_info: RankInfo
) -> Iterator[CollectivePoint]:
    sizes, bench = Sizes.of(device, quick=request.quick), bench_of(request, device)
    peers = [*peers_within(device, rank_info.local_world_size), *peers_across(rank_info.local_world_size)]
    for point in collective_points(bench, sizes, peers):
        reporter.collective(point)
        yield point


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure as one rank of a job, and return its exit code, which means what a trial's means."""
    die_with_parent(signal.SIGKILL)
    faulthandler.register(signal.SIGUSR1, all_threads=False)  # whoever gives up asks where this rank hangs
    parser = argparse.ArgumentParser(prog="python -m trials.benchmarks.links", description="Benchmark as one rank.")
    parser.add_argument("--spec", type=Path, required=True, help="a ProfileRequest as JSON")
    parser.add_argument("--reports", type=Path, required=True, help="file to append JSON lines to")
    paths = parser.parse_args(arguments)
    rank_info = RankInfo.from_environment(os.environ)
    reporter = Reporter(paths.reports, rank=rank_info.rank)
    try:
        measure(codec.loads(ProfileRequest, paths.spec.read_text()), reporter, rank_info)
    except Exception as error:
        reporter.failure(classify(error), headline(error), traceback.format_exc())
        traceback.print_exc()
        return 2 if isinstance(error, InvalidInput) else 1
    return 0


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # torch's own clean-up takes a second and has nothing left to do
