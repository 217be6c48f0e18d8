"""What a trial ran on: versions, devices, clocks, and the variables that change how the libraries behave."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import torch

from autotuner.host.machine import hardware_facts, settings_of_libraries, software_facts
from trials.measurement.gpu import LOWEST, Gpu


def environment(device: torch.device, gpu: Gpu | None, variables: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The facts of this rank's machine; its name is hashed, so that results can be shared and still told apart."""
    facts = {"torch": torch.__version__} | software_facts() | hardware_facts()
    facts |= _cuda(device) if device.type == "cuda" else {"device": facts.get("cpu", ""), "backend": "gloo"}
    return facts | (gpu.facts if gpu else {}) | settings_of_libraries(variables)


def of_all_ranks(facts: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Those of rank 0, and what others see otherwise: a slow step is as a rule one rank's.

    Of clocks and limits the lowest counts, of versions and devices each with the ranks that have it; ``nodes`` lists
    all machines where there is more than one.
    """
    hosts = sorted({one["host"] for one in facts})
    together = {name: _of_all(name, value, facts) for name, value in facts[0].items()}
    return together | ({"nodes": ",".join(hosts)} if len(hosts) > 1 else {})


def _of_all(name: str, first: str, facts: Sequence[Mapping[str, str]]) -> str:
    values = [one[name] for one in facts if name in one]
    if name == "host" or name.isupper() or len(set(values)) == 1:
        return first  # variables differ where a launcher gives each rank its own
    if name in LOWEST:
        return min(values, key=float)
    counts = {value: values.count(value) for value in sorted(set(values))}
    return ", ".join(f"{value} ({number} ranks)" for value, number in counts.items())


def _cuda(device: torch.device) -> dict[str, str]:
    version = ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]
    return {
        "device": torch.cuda.get_device_name(device),
        "backend": "nccl",
        "cuda": str(torch.version.cuda),
        "cudnn": str(torch.backends.cudnn.version()),  # type: ignore[no-untyped-call]
        "nccl": version,
    }
