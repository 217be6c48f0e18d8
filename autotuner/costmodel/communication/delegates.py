"""What it takes delegates to carry hidden states: copies to the host and back, and a send between hosts."""

from __future__ import annotations

from dataclasses import dataclass

from autotuner.core.columns import Floats
from autotuner.core.job import Job

HOST_BYTES_PER_S = 1.5e9
"""What one delegate sends between hosts by gloo. The iteration times that the authors of arXiv 2504.19232 logged on
H800, always delegated and not: of 7B, 30B and 60B the difference, over the 2 (p - 1) sends that stand one after the
other in a step, is 7, 12 and 15 ms for 10, 17 and 23 MB: 1.4 to 1.6 GB/s. 14B, 1.4 ms for 10 MB, hides most of them."""

START_S = 1e-4
"""Of a transfer: a signal that a process beside polls for, twice. An assumption."""

COPY_BYTES_PER_S = {"cuda": 25e9, "rocm": 25e9, "cpu": 4e9}
"""Between a device and pinned memory: PCIe 4.0 x16, 32 GB/s less its protocol; on cores a copy within memory. What a
device has faster than that shows in copies too short to matter."""

_SLOWEST_COPY = 4e9


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegatedTransfer:
    """One transfer on healthy links.

    Attributes:
        copy_s: The sending rank copies, and the receiving one; neither computes meanwhile.
        carried_s: A delegate is busy, and nobody else.
    """

    copy_s: Floats
    carried_s: Floats


def delegated_transfer(sent_bytes: Floats, job: Job) -> DelegatedTransfer:
    """A transfer of so many bytes, by laws that wait to be measured; ``comparison`` says so of every prediction."""
    kind = job.cluster.accelerator.kind
    return DelegatedTransfer(
        copy_s=sent_bytes / COPY_BYTES_PER_S.get(kind, _SLOWEST_COPY),
        carried_s=START_S + sent_bytes / HOST_BYTES_PER_S,
    )
