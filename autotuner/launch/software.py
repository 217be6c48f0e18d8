"""The software of this machine that trials would meet, told without starting one: versions, driver, kernel."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from autotuner.launch.detect import host_hash

__all__ = ["software_of_this_machine"]

_PACKAGES: Mapping[str, tuple[str, ...]] = {
    "torch": ("torch",),
    "triton": ("triton",),
    "nccl": ("nvidia-nccl-cu13", "nvidia-nccl-cu12"),
}
"""What trials call a part of their software, and the packages that may hold it."""

_NVIDIA = Path("/sys/module/nvidia/version")


def software_of_this_machine(driver: Path = _NVIDIA) -> dict[str, str]:
    """Facts under the names that trials record them by; what is not there is left out.

    Only what a change of can be seen without torch: it is asked every few seconds, by a service that never imports it.
    """
    facts = {"host": host_hash(), "python": platform.python_version(), "kernel": os.uname().release}
    return facts | dict(_versions()) | dict(_driver(driver))


def _versions() -> Iterator[tuple[str, str]]:
    for name, packages in _PACKAGES.items():
        for package in packages:
            try:
                yield name, version(package)
            except PackageNotFoundError:
                continue
            break


def _driver(path: Path) -> Iterator[tuple[str, str]]:
    try:
        text = path.read_text()
    except OSError:
        return
    if found := re.search(r"\d+(\.\d+)+", text):
        yield "driver", found[0]
