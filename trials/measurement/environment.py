"""What a trial ran on: versions, devices, clocks, and the variables that change how the libraries behave."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Mapping

import torch

from trials.measurement.cores import cpu_name
from trials.measurement.gpu import Gpu
from trials.runtime.rank import host_name

__all__ = ["environment", "hashed", "settings_of_libraries"]

_PREFIXES = ("NCCL_", "TORCH_", "TORCHINDUCTOR_", "CUDA_", "GLOO_", "OMP_", "PYTORCH_", "UCX_", "FI_")
"""Variables of NCCL, PyTorch and its compiler and allocator, CUDA, gloo, OpenMP, and the two fabrics under NCCL."""

_WITHHELD = ("PATH", "DIR", "FILE", "HOME")
"""Words in the names of variables that hold places on a disk: they tell of a machine, not of a measurement."""


def environment(device: torch.device, gpu: Gpu | None, variables: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The facts of this rank's machine; its name is hashed, so that results can be shared and still told apart."""
    facts = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "kernel": os.uname().release,
        "host": hashed(host_name()),
        "cpu": cpu_name(),
    }
    facts |= _cuda(device) if device.type == "cuda" else {"device": cpu_name(), "backend": "gloo"}
    return facts | (gpu.facts if gpu else {}) | settings_of_libraries(variables)


def hashed(name: str) -> str:
    """The first 12 hexadecimal digits of its SHA-256: the same for the same name, and no way back."""
    return hashlib.sha256(name.encode()).hexdigest()[:12]


def settings_of_libraries(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables that are set and change what the libraries do."""
    return {
        name: value
        for name, value in sorted(variables.items())
        if name.startswith(_PREFIXES) and not any(word in name for word in _WITHHELD)
    }


def _cuda(device: torch.device) -> dict[str, str]:
    version = ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]
    return {
        "device": torch.cuda.get_device_name(device),
        "backend": "nccl",
        "cuda": str(torch.version.cuda),
        "cudnn": str(torch.backends.cudnn.version()),  # type: ignore[no-untyped-call]
        "nccl": version,
    }
