"""Collectives as they were timed on this very machine, where a profile of its cores says so."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from autotuner.costmodel.columns import Floats
from autotuner.costmodel.communication.process_groups import Group
from autotuner.domain.jobs.cluster import CollectiveKind

__all__ = ["measured_s", "without_starts"]


def without_starts(group: Group) -> Group:
    """The group whose collectives take no more than their bytes do, since what they start is counted elsewhere."""
    link = group.intra_node_link
    return replace(group, intra_node_link=replace(link, measured=tuple(replace(m, start_s=0.0) for m in link.measured)))


def measured_s(kind: CollectiveKind, full_bytes: Floats, group: Group) -> Floats | None:
    """Seconds by the lines of the group's link; None where it has none of that kind.

    Between the numbers of ranks that were timed, and beyond them, a straight line in the steps of a ring.
    """
    lines = sorted(
        (line for line in group.intra_node_link.measured if line.kind == kind), key=lambda line: line.num_ranks
    )
    if not lines:
        return None
    ranks = [line.num_ranks for line in lines]
    beyond = np.maximum(1.0, (group.num_ranks - 1) / (ranks[-1] - 1))
    start_s = np.interp(group.num_ranks, ranks, [line.start_s for line in lines])
    s_per_byte = np.interp(group.num_ranks, ranks, [line.s_per_byte for line in lines])
    seconds: Floats = np.where(group.num_ranks > 1, beyond * (start_s + full_bytes * s_per_byte), 0.0)
    return seconds
