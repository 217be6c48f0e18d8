"""This machine as a cluster of one node, and questions that only torch can answer, asked in a subprocess."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from itertools import takewhile
from threading import Timer
from typing import Literal, TextIO

import psutil

from autotuner.catalog.hardware import load_accelerator, load_cluster
from autotuner.core.cluster import Cluster
from autotuner.core.codec import dumps, loads
from autotuner.core.dry_run import DryRun, DryRunRequest
from autotuner.core.errors import AutotunerError, InvalidInput
from autotuner.core.profile import DeviceProfile, Measurements, ProfileRequest, Wanted, with_links
from autotuner.costmodel.profile_fit import fit_profile
from autotuner.host.machine_facts import host_hash, software_facts

_LOG = logging.getLogger("autotuner")

# Questions that only torch can answer: a subprocess answers them, since the service never imports torch.

_DRY_RUN_TIMEOUT_S = 3600.0
"""Time limit of a dry run. An exact run of hundreds of layers and micro-batches takes minutes; no user waits longer
than this."""

_PROFILE_TIMEOUT_S = 600.0
_GEMM_TIMEOUT_S = 300.0
"""Time limit for timing matrix products. They take a few seconds; a busy machine needed more than 45."""
_EXIT_REFUSED = 2


def ask_torch(module: str, question: str, *, timeout_s: float, progress: Callable[[str], None] = lambda _: None) -> str:
    """Run ``python -m module`` with ``question`` as its standard input, and return the last line that it prints.

    ``progress`` is called with each line that the process writes to standard error. If the process fails, the last of
    these lines says why.

    Raises:
        InvalidInput: The process refused the question, or torch is not installed.
        AutotunerError: The process failed, or took too long.
    """
    with tempfile.TemporaryFile("w+") as asked, tempfile.TemporaryFile("w+") as answered:
        asked.write(question)
        asked.seek(0)
        status, last = _followed(module, asked, answered, timeout_s, progress)
        answered.seek(0)
        if status == 0:
            return answered.read().splitlines()[-1]
    if "No module named 'torch'" in last:
        raise InvalidInput("torch", None, "is not installed here; run pip install 'parallelism-autotuner[trials]'")
    if status == _EXIT_REFUSED:
        raise InvalidInput(module, "as given", last)
    raise AutotunerError(f"{module} failed: {last}")


def _followed(
    module: str, asked: TextIO, answered: TextIO, timeout_s: float, progress: Callable[[str], None]
) -> tuple[int, str]:
    """Run the module in a subprocess; return its exit status and the last line that it wrote to standard error.

    Raises:
        AutotunerError: The module had no answer within the time limit.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", module],
        stdin=asked,
        stdout=answered,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    _LOG.info("run python -m %s", module)
    limit = Timer(timeout_s, process.kill)
    limit.start()
    last = "it printed nothing"
    with process:
        try:
            for line in filter(str.strip, process.stderr or ()):
                last = line.strip()
                progress(last)
                _LOG.info("%s", last)
            status = process.wait()
            is_late = not limit.is_alive()
        finally:
            limit.cancel()
            process.kill()
    if is_late:
        raise AutotunerError(
            f"{module} gave no answer within {timeout_s:.0f} s; try again when other programs on this machine have "
            "ended"
        )
    return status, last


def dry_run(request: DryRunRequest, progress: Callable[[str], None] = lambda _: None) -> DryRun:
    """Return the memory and the operations that the ranks of a full-size layout need, without running the training.

    ``progress`` is called with status lines.

    Raises:
        InvalidInput: torch is not installed.
        AutotunerError: The dry run failed.
    """
    question = dumps(request)
    return loads(
        DryRun, ask_torch("autotuner.trials.dry_run.dry_run", question, timeout_s=_DRY_RUN_TIMEOUT_S, progress=progress)
    )


def profile_of(
    cluster: Cluster, *, name: str, measured_at: float, quick: bool = False, links: bool = False
) -> DeviceProfile:
    """Run benchmarks on all devices of this machine at the same time, and return the measured speeds as a profile.

    Args:
        cluster: This machine as a cluster of one node.
        name: Name of the profile.
        measured_at: Time of the measurement in epoch seconds.
        quick: True to measure only small sizes, which is less accurate.
        links: True to measure each link between devices, too.

    Raises:
        InvalidInput: torch is not installed.
        AutotunerError: A rank died, or the measurement took too long.
    """
    measured = _measured(cluster, "devices_and_links" if links else "devices", quick=quick)
    profile = fit_profile(
        measured,
        name=name,
        measured_at=measured_at,
        num_ranks=_num_ranks(cluster),
        accelerator=cluster.accelerator,
    )
    return with_links(profile, measured.links, measured_at=measured_at) if links else profile


def remeasured_links(
    profile: DeviceProfile, cluster: Cluster, *, measured_at: float, quick: bool = False
) -> DeviceProfile:
    """Measure only the links of this machine again, and return its profile with the new links.

    Errors are those of ``profile_of``.
    """
    return with_links(profile, _measured(cluster, "links", quick=quick).links, measured_at=measured_at)


def _measured(cluster: Cluster, wanted: Wanted, *, quick: bool) -> Measurements:
    device: Literal["cpu", "cuda"] = "cpu" if cluster.accelerator.kind == "cpu" else "cuda"
    request = ProfileRequest(device=device, num_ranks=_num_ranks(cluster), quick=quick, wanted=wanted)
    return loads(
        Measurements, ask_torch("autotuner.trials.benchmarks.profile", dumps(request), timeout_s=_PROFILE_TIMEOUT_S)
    )


def _num_ranks(cluster: Cluster) -> int:
    """Return one rank per device, and no more than this process has cores."""
    is_cpu = cluster.accelerator.kind == "cpu"
    return min(cluster.world_size, len(os.sched_getaffinity(0))) if is_cpu else cluster.world_size


def gemm_flop_per_s() -> tuple[float, float]:
    """Return the measured FLOP/s of one core in fp32 and in bf16, while all cores multiply matrices.

    The measurement runs the same code as the trial job.

    Raises:
        InvalidInput: torch is not installed.
        AutotunerError: The cores are too busy to be measured.
    """
    rates = json.loads(ask_torch("autotuner.trials.benchmarks.gemm", "", timeout_s=_GEMM_TIMEOUT_S))
    return float(rates["fp32_flop_per_s"]), float(rates["bf16_flop_per_s"])


# The machine this runs on, as a cluster of one node.

_LOCAL = "local"
_DRIVER_TIMEOUT_S = 10.0

_BY_DRIVER_NAME = {
    "Tesla V100-SXM2-32GB": "v100",
    "NVIDIA A100-SXM4-40GB": "a100-40gb",
    "NVIDIA A100-SXM4-80GB": "a100-80gb",
    "NVIDIA H100 80GB HBM3": "h100-sxm",
    "NVIDIA H100 PCIe": "h100-pcie",
    "NVIDIA H200": "h200",
    "NVIDIA B200": "b200",
    "NVIDIA GB200": "gb200",
    "NVIDIA L40S": "l40s",
}
"""Accelerators of the catalog by the name that nvidia-smi prints."""


_measuring = threading.Lock()
"""Lock held while the cores are measured, so that a second caller waits for that result instead of measuring too."""


def detect_cluster() -> Cluster:
    """Return this machine as a cluster of its GPUs if ``nvidia-smi`` lists any, else of its CPU cores.

    Each GPU or core is one rank. The peak of a core is its measured GEMM rate while all cores are busy. It is measured
    once per process, which takes a few seconds.

    Raises:
        InvalidInput: The GPU is not in the catalog, or the GEMM rate cannot be measured because torch is missing.
    """
    with _measuring:
        return _detected()


def has_to_measure() -> bool:
    """Return True if ``detect_cluster`` would take seconds, because it has to measure this machine's cores.

    It is also True if another thread measures at the moment, because ``detect_cluster`` would wait for the result.
    """
    return _detected.cache_info().currsize == 0 and not visible_gpus()


def unmeasured_cluster() -> Cluster:
    """Return this machine's cores as a cluster without a measurement, with the peak FLOP/s of cores in the catalog.

    Use it if an answer is needed at once; ``detect_cluster`` measures the peak.
    """
    num_cores = num_usable_cores()
    core = replace(load_accelerator("cpu"), memory_bytes=psutil.virtual_memory().total // num_cores)
    return replace(load_cluster(f"cpu:1x{num_cores}"), name=_LOCAL, accelerator=core)


def forget_cluster() -> None:
    """Forget the detected cluster, so that the next call of ``detect_cluster`` detects and measures again."""
    with _measuring:
        _detected.cache_clear()


@cache
def _detected() -> Cluster:
    num_gpus = len(visible_gpus())
    return _gpus(gpu_names(), num_gpus) if num_gpus else _cores()


def _gpus(names: list[str], num_gpus: int) -> Cluster:
    found = _BY_DRIVER_NAME.get(names[0])
    if found is None:
        near = get_close_matches(names[0], _BY_DRIVER_NAME, 1)
        raise InvalidInput(
            "cluster",
            names[0],
            "is a GPU that is not in the catalog; name a cluster of the catalog instead",
            near[0] if near else None,
        )
    return replace(load_cluster(f"{found}:1x{num_gpus}"), name=_LOCAL)


def _cores() -> Cluster:
    unmeasured = unmeasured_cluster()
    try:
        fp32_flop_per_s, bf16_flop_per_s = gemm_flop_per_s()
    except AutotunerError as error:
        raise InvalidInput(
            "cluster",
            _LOCAL,
            f"the cores of this machine cannot be measured ({error}); name another cluster, for example cpu:4",
        ) from error
    core = replace(
        unmeasured.accelerator,
        fp32_flop_per_s=fp32_flop_per_s,
        bf16_flop_per_s=bf16_flop_per_s,
        peak_source=f"measured GEMM rate of {unmeasured.world_size} busy cores",
        peak_is_measured=True,
    )
    return replace(unmeasured, accelerator=core)


def num_usable_cores() -> int:
    """Return the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def gpu_names() -> list[str]:
    """Return the driver's names of this machine's GPUs, in the driver's order; empty without a driver."""
    if shutil.which("nvidia-smi") is None:
        return []
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_DRIVER_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return []  # a machine whose driver hangs cannot run a trial either
    return [line.strip() for line in done.stdout.splitlines() if line.strip()] if done.returncode == 0 else []


def visible_gpus() -> tuple[str, ...]:
    """Return the names of the GPUs that trials may use.

    These are the GPUs in ``CUDA_VISIBLE_DEVICES`` if it is set, else the numbers of all GPUs.
    """
    all_gpus = tuple(map(str, range(len(gpu_names()))))
    wanted = os.environ.get("CUDA_VISIBLE_DEVICES")
    if wanted is None or not all_gpus:
        return all_gpus
    return tuple(takewhile(_is_device, map(str.strip, wanted.split(","))))


def _is_device(name: str) -> bool:
    """Return True if this is the name of a device. CUDA stops reading at the first other name, such as ``-1``."""
    return name.isdecimal() or name.startswith(("GPU-", "MIG-"))


# The software of this machine that trials would use, found without starting a trial: versions, driver, kernel.


def software_of_this_machine() -> dict[str, str]:
    """Return the software versions of this machine, by the names that trials use for them; unknown ones are left out.

    Only versions that can be read without torch are included, because a service without torch reads them every few
    seconds. A registered trainer runs in another Python, whose versions may differ (see ``system_facts``).
    """
    return {"host": host_hash(), **software_facts()}
