"""The machine this runs on, as a cluster of one node."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from itertools import takewhile

import psutil

from autotuner.catalog.hardware import load_accelerator, load_cluster
from autotuner.core.cluster import Cluster
from autotuner.core.errors import AutotunerError, InvalidInput
from autotuner.launch.torch_jobs import gemm_flop_per_s

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
"""What nvidia-smi calls the accelerators of the catalog."""


_measuring = threading.Lock()
"""Held while the cores are measured: who asks meanwhile waits for that answer, and does not measure beside it."""


def detect_cluster() -> Cluster:
    """This machine's GPUs where ``nvidia-smi`` lists some, else its cores, one rank each.

    A core's peak is its measured GEMM rate with all cores busy; asked once per process, it takes a few seconds.

    Raises:
        InvalidInput: The GPU is not in the catalog, or the GEMM rate cannot be measured because torch is missing.
    """
    with _measuring:
        return _detected()


def has_to_measure() -> bool:
    """Return whether ``detect_cluster`` would measure this machine's cores, or wait until somebody else has."""
    return _detected.cache_info().currsize == 0 and not visible_gpus()


def unmeasured_cluster() -> Cluster:
    """Return this machine as ``detect_cluster`` does, at once: its cores have the catalog's peaks."""
    num_cores = num_usable_cores()
    core = replace(load_accelerator("cpu"), memory_bytes=psutil.virtual_memory().total // num_cores)
    return replace(load_cluster(f"cpu:1x{num_cores}"), name=_LOCAL, accelerator=core)


def forget_cluster() -> None:
    """Ask again when it is next detected."""
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
        raise InvalidInput("cluster", names[0], "is a GPU that the catalog does not know", near[0] if near else None)
    return replace(load_cluster(f"{found}:1x{num_gpus}"), name=_LOCAL)


def _cores() -> Cluster:
    unmeasured = unmeasured_cluster()
    try:
        fp32_flop_per_s, bf16_flop_per_s = gemm_flop_per_s()
    except AutotunerError as error:
        raise InvalidInput("cluster", _LOCAL, f"cannot measure this machine's cores: {error}") from error
    core = replace(
        unmeasured.accelerator,
        fp32_flop_per_s=fp32_flop_per_s,
        bf16_flop_per_s=bf16_flop_per_s,
        peak_source=f"measured GEMM rate of {unmeasured.world_size} busy cores",
        peak_is_measured=True,
    )
    return replace(unmeasured, accelerator=core)


def num_usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def gpu_names() -> list[str]:
    """What the driver calls this machine's GPUs, in its order; empty without a driver."""
    if shutil.which("nvidia-smi") is None:
        return []
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_DRIVER_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return []  # a driver that hangs runs no trial either
    return [line.strip() for line in done.stdout.splitlines() if line.strip()] if done.returncode == 0 else []


def visible_gpus() -> tuple[str, ...]:
    """The GPUs that trials may use: those of ``CUDA_VISIBLE_DEVICES`` where it is set, else the driver's, by number."""
    all_gpus = tuple(map(str, range(len(gpu_names()))))
    wanted = os.environ.get("CUDA_VISIBLE_DEVICES")
    if wanted is None or not all_gpus:
        return all_gpus
    return tuple(takewhile(_is_device, map(str.strip, wanted.split(","))))


def _is_device(name: str) -> bool:
    """CUDA reads the variable up to the first name that is none; ``-1`` is the usual one."""
    return name.isdecimal() or name.startswith(("GPU-", "MIG-"))
