"""What this machine and its software are, as trials record it; torch is not imported to say so.

Trials call it on their ranks, nodes of an engine before they start a trainer, the service to notice that its machine is
no longer what it was: each fact has one name and one way to be read, so that two of them can be compared.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import platform
import re
import socket
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from autotuner.host.library_variables import RECORDED

IMAGE = "AUTOTUNER_CONTAINER_IMAGE"
"""Variable that says which container image a process runs in, since few runtimes tell their containers."""

_PACKAGES = (
    "torch",
    "triton",
    "nvidia-nccl-cu12",
    "nvidia-nccl-cu13",
    "nvidia-cudnn-cu12",
    "nvidia-cudnn-cu13",
    "nvidia-cublas-cu12",
    "nvidia-cublas",
    "transformer-engine",
    "flash-attn",
    "megatron-core",
    "deepspeed",
)
"""Installed packages that do a step's work; what is not installed is left out."""

ALSO_RECORDED = "AUTOTUNER_ALSO_RECORDED"
"""Variable that names others, with commas, that an operator wants to see with every measurement."""

_LONGEST = 200
"""Characters that are kept of a variable."""


def software_facts() -> dict[str, str]:
    """Versions of this Python and of what is installed for it, and those of the system."""
    return {"python": platform.python_version(), **_packages(), **system_facts()}


def system_facts() -> dict[str, str]:
    """Driver, kernel, system and C library, and the container's image: what programs of any Python run on."""
    facts = {
        "driver": driver_version(),
        "container_image": _image(os.environ),
        "kernel": platform.release(),
        "os": _system(),
        "libc": "-".join(platform.libc_ver()).strip("-"),
    }
    return {name: value for name, value in facts.items() if value}


def hardware_facts() -> dict[str, str]:
    """Name of the machine as a hash, and what its cores are and may do; of accelerators a trial asks the driver."""
    cpu = Path("/sys/devices/system/cpu")
    facts = {
        "host": host_hash(),
        "cpu": cpu_name(),
        "cpus": str(os.cpu_count() or ""),
        "cpu_quota": _quota(),
        "cpu_governor": ",".join(sorted({_text(path) for path in cpu.glob("cpu[0-9]*/cpufreq/scaling_governor")})),
        "cpu_max_mhz": _lowest_mhz(cpu),
        "cpu_boost": _text(cpu / "cpufreq/boost"),
        "cpu_no_turbo": _text(cpu / "intel_pstate/no_turbo"),
        "smt": _text(cpu / "smt/active"),
        "huge_pages": _chosen(Path("/sys/kernel/mm/transparent_hugepage/enabled")),
        "niceness": str(os.getpriority(os.PRIO_PROCESS, 0)),
    }
    return {name: value for name, value in facts.items() if value}


def host_hash() -> str:
    """This machine's name as a hash, as profiles and measurements carry it: tells machines apart and names none.

    Salted with what only the machine knows: without that whoever has a list of names could find out which it is.
    """
    return hmac.new(_machine_id(), socket.gethostname().encode(), hashlib.sha256).hexdigest()[:12]


def is_this_host(told: str) -> bool:
    """Whether a hash is this machine's, as it is made now or, without a salt, by releases before revision 0010."""
    return told in (host_hash(), hashlib.sha256(socket.gethostname().encode()).hexdigest()[:12])


def cpu_name() -> str:
    """The processor's model name as the kernel gives it; empty where it gives none."""
    lines = _text(Path("/proc/cpuinfo")).splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def settings_of_libraries(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables that are set and known to change what libraries do, or named by the operator; no URL."""
    named = RECORDED.union(os.environ.get(ALSO_RECORDED, "").split(","))
    return {name: value[:_LONGEST] for name, value in sorted(variables.items()) if name in named and "://" not in value}


def _machine_id() -> bytes:
    """What systemd or D-Bus gave this machine when it was set up; empty where there is neither, as in many images.

    Source: machine-id(5), which asks programs to tell others no more than a keyed hash made with it.
    """
    return (_text(Path("/etc/machine-id")) or _text(Path("/var/lib/dbus/machine-id"))).encode()


def _packages() -> dict[str, str]:
    found: dict[str, str] = {}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def driver_version(folder: Path = Path("/")) -> str:
    """Version of NVIDIA's kernel module, in the file system that begins at ``folder``; empty without one.

    Source: README of NVIDIA's Linux driver, chapter on the /proc file system; with the open modules the version stands
    behind the architecture.
    """
    if version := _text(folder / "sys/module/nvidia/version"):
        return version
    found = re.search(
        r"Kernel Module\D+(?:x86_64|aarch64)?\s+(\d+(?:\.\d+)+)", _text(folder / "proc/driver/nvidia/version")
    )
    return found.group(1) if found else ""


def _image(variables: Mapping[str, str]) -> str:
    """What the operator or the engine says, else what Podman, Apptainer or NVIDIA's images tell of themselves."""
    if said := variables.get(IMAGE):
        return said
    if found := re.search(r'^imageid="(\w+)"', _text(Path("/run/.containerenv")), re.MULTILINE):
        return found.group(1)
    if file := variables.get("APPTAINER_CONTAINER") or variables.get("SINGULARITY_CONTAINER"):
        return Path(file).name
    return " ".join(filter(None, (variables.get("NVIDIA_PRODUCT_NAME"), variables.get("NVIDIA_BUILD_ID"))))


def _system() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        return platform.system()


def _quota() -> str:
    """Cores' worth of time that the control group gets; empty without a limit.

    Source: cgroup-v2.rst of the kernel, ``cpu.max``: quota and period in microseconds, or ``max``.
    """
    quota, _, period = _text(Path("/sys/fs/cgroup/cpu.max")).partition(" ")
    return f"{int(quota) / int(period):g}" if quota.isdecimal() and period.isdecimal() else ""


def _lowest_mhz(cpu: Path) -> str:
    """The lowest of the cores' highest clocks: ranks wait for the slowest core."""
    limits = [_text(path) for path in cpu.glob("cpu[0-9]*/cpufreq/scaling_max_freq")]
    khz = [int(limit) for limit in limits if limit.isdecimal()]
    return str(min(khz) // 1000) if khz else ""


def _chosen(path: Path) -> str:
    """The word in brackets: how the kernel shows which of several is in force."""
    found = re.search(r"\[(\w+)\]", _text(path))
    return found.group(1) if found else ""


def _text(path: Path) -> str:
    """What a file of the kernel says, without its end; empty where there is none or it may not be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
