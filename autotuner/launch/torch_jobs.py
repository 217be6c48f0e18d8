"""Questions that only torch can answer, asked of a process of their own: the service never imports it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from threading import Timer
from typing import Literal, TextIO

from autotuner.core.choices import Precision
from autotuner.core.cluster import Cluster
from autotuner.core.codec import dumps, loads
from autotuner.core.dry_run import DryRun, DryRunRequest
from autotuner.core.errors import AutotunerError, InvalidInput
from autotuner.core.profile import DeviceProfile, Measurements, ProfileRequest, Wanted, with_links
from autotuner.core.profile_fit import fit_profile

_DRY_RUN_TIMEOUT_S = 3600.0
"""An exact run of hundreds of layers and micro-batches takes minutes; nobody waits for longer than this."""

_PROFILE_TIMEOUT_S = 600.0
_GEMM_TIMEOUT_S = 300.0
"""A few seconds on a quiet machine; a busy one was seen to need more than 45."""
_EXIT_REFUSED = 2


def ask_torch(module: str, question: str, *, timeout_s: float, progress: Callable[[str], None] = lambda _: None) -> str:
    """The last line that ``python -m module`` prints when it is given the question on its standard input.

    ``progress`` hears each line of its standard error as it comes; the last of them says why it broke, if it did.

    Raises:
        InvalidInput: The process refused the question, or torch is not installed.
        AutotunerError: It broke, or took too long.
    """
    with tempfile.TemporaryFile("w+") as asked, tempfile.TemporaryFile("w+") as answered:
        asked.write(question)
        asked.seek(0)
        status, last = _followed(module, asked, answered, timeout_s, progress)
        answered.seek(0)
        if status == 0:
            return answered.read().splitlines()[-1]
    if "No module named 'torch'" in last:
        raise InvalidInput("torch", None, "is not installed here; see the extra `trials` of pyproject.toml")
    if status == _EXIT_REFUSED:
        raise InvalidInput(module, "as given", last)
    raise AutotunerError(f"{module} failed: {last}")


def _followed(
    module: str, asked: TextIO, answered: TextIO, timeout_s: float, progress: Callable[[str], None]
) -> tuple[int, str]:
    """The exit status of the module, and the last that it said on standard error."""
    process = subprocess.Popen(
        [sys.executable, "-m", module],
        stdin=asked,
        stdout=answered,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    limit = Timer(timeout_s, process.kill)
    limit.start()
    last = "it said nothing"
    with process:
        try:
            for line in filter(str.strip, process.stderr or ()):
                last = line.strip()
                progress(last)
            status = process.wait()
            is_late = not limit.is_alive()
        finally:
            limit.cancel()
            process.kill()
    if is_late:
        raise AutotunerError(f"{module} had no answer after {timeout_s:.0f} s")
    return status, last


def dry_run(request: DryRunRequest, progress: Callable[[str], None] = lambda _: None) -> DryRun:
    """What the ranks of a layout would hold and compute at full size; ``progress`` hears how far it is.

    Raises:
        InvalidInput: torch is missing.
        AutotunerError: The run broke.
    """
    question = dumps(request)
    return loads(DryRun, ask_torch("trials.dry_run.dry_run", question, timeout_s=_DRY_RUN_TIMEOUT_S, progress=progress))


def profile_of(
    cluster: Cluster, *, name: str, measured_at: float, quick: bool = False, links: bool = False
) -> DeviceProfile:
    """What the devices of a cluster of one node, this machine, reach when all are busy, and their links one by one.

    Raises:
        InvalidInput: torch is missing.
        AutotunerError: A rank died, or they took too long.
    """
    accelerator = cluster.accelerator
    on_cores = accelerator.kind == "cpu"
    measured = _measured(cluster, "devices_and_links" if links else "devices", quick=quick)
    # a data sheet's peaks are what shares are of; a core has none
    peaks = {} if on_cores else {precision: accelerator.peak_flop_per_s(precision) for precision in Precision}
    profile = fit_profile(
        measured,
        name=name,
        measured_at=measured_at,
        num_ranks=_num_ranks(cluster),
        peaks=peaks,
        on_cores=on_cores,
    )
    return with_links(profile, measured.links, measured_at=measured_at) if links else profile


def remeasured_links(
    profile: DeviceProfile, cluster: Cluster, *, measured_at: float, quick: bool = False
) -> DeviceProfile:
    """The profile of this machine with its links measured again, and nothing else; errors as ``profile_of``."""
    return with_links(profile, _measured(cluster, "links", quick=quick).links, measured_at=measured_at)


def _measured(cluster: Cluster, wanted: Wanted, *, quick: bool) -> Measurements:
    device: Literal["cpu", "cuda"] = "cpu" if cluster.accelerator.kind == "cpu" else "cuda"
    request = ProfileRequest(device=device, num_ranks=_num_ranks(cluster), quick=quick, wanted=wanted)
    return loads(Measurements, ask_torch("trials.benchmarks.profile", dumps(request), timeout_s=_PROFILE_TIMEOUT_S))


def _num_ranks(cluster: Cluster) -> int:
    """One per device; no more than this process has cores."""
    is_cpu = cluster.accelerator.kind == "cpu"
    return min(cluster.world_size, len(os.sched_getaffinity(0))) if is_cpu else cluster.world_size


def gemm_flop_per_s() -> tuple[float, float]:
    """FLOP/s of one core in fp32 and in bf16 while all cores multiply, by the trial job's own code.

    Raises:
        InvalidInput: torch is missing.
        AutotunerError: The cores are too busy to be measured.
    """
    rates = json.loads(ask_torch("trials.benchmarks.gemm", "", timeout_s=_GEMM_TIMEOUT_S))
    return float(rates["fp32_flop_per_s"]), float(rates["bf16_flop_per_s"])
