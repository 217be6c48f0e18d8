"""Takes the profile of this machine, in a process with torch."""

from __future__ import annotations

import os

from autotuner.domain.choice import Precision
from autotuner.domain.cluster import Cluster
from autotuner.domain.profile import DeviceProfile, Measurements, ProfileRequest
from autotuner.domain.profile_fit import fit_profile
from autotuner.domain.wire import dumps, loads
from autotuner.launch.torch_job import ask_torch

__all__ = ["profile_of"]

_TIMEOUT_S = 600.0


def profile_of(cluster: Cluster, *, name: str, measured_at: float, quick: bool = False) -> DeviceProfile:
    """What the devices of a cluster of one node, this machine, reach when all are busy.

    Raises:
        InvalidInput: torch is missing.
        AutotunerError: A rank died, or they took too long.
    """
    accelerator = cluster.accelerator
    is_cpu = accelerator.kind == "cpu"
    num_ranks = min(cluster.world_size, len(os.sched_getaffinity(0))) if is_cpu else cluster.world_size
    request = ProfileRequest(device="cpu" if is_cpu else "cuda", num_ranks=num_ranks, quick=quick)
    measured = loads(Measurements, ask_torch("trials.benchmarks.profile", dumps(request), timeout_s=_TIMEOUT_S))
    # a data sheet's peaks are what shares are of; a core has none
    peaks = {} if is_cpu else {precision: accelerator.peak_flop_per_s(precision) for precision in Precision}
    return fit_profile(measured, name=name, measured_at=measured_at, num_ranks=num_ranks, peaks=peaks)
