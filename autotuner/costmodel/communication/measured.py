"""Collectives as they were timed on these very machines, where a profile of their cores says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from autotuner.core.columns import Floats
from autotuner.core.link import CollectiveKind, Link, MeasuredCollective
from autotuner.costmodel.communication.group import Group
from autotuner.costmodel.communication.slow_links import SlowLinks


def without_starts(group: Group) -> Group:
    """The group whose collectives take no more than their bytes do, since what they start is counted elsewhere."""
    return replace(
        group, intra_node_link=_silent(group.intra_node_link), inter_node_link=_silent(group.inter_node_link)
    )


def _silent(link: Link) -> Link:
    return replace(link, measured=tuple(replace(line, start_s=0.0) for line in link.measured))


def measured_s(kind: CollectiveKind, full_bytes: Floats, group: Group) -> Floats | None:
    """Seconds by the lines of the group's link; None where it has none of that kind.

    Groups on several nodes follow the lines of the network, or those of the link inside where it has none. Between the
    numbers of ranks that were timed, and beyond them, a straight line in the steps of a ring.
    """
    within, across = (_lines(link, kind) for link in (group.intra_node_link, group.inter_node_link))
    if not within:
        return None
    inside_s = _on_lines(within, full_bytes, group)
    seconds = np.where(group.crosses_nodes, _on_lines(across, full_bytes, group), inside_s) if across else inside_s
    if group.network or group.ring is not None:
        seconds = seconds + full_bytes * _routed_s_per_byte(kind, group)
    return seconds if group.slow is None else _slower_s(kind, seconds, full_bytes, group, group.slow)


def _routed_s_per_byte(kind: CollectiveKind, group: Group) -> Floats:
    """What a byte takes longer by the laws where ranks are dealt in turn, or a network is described, than was timed.

    That was between two nodes, or a few, filled one after the other.
    """
    plain = replace(group, network=(), ring=None, relayed=0.0)
    match kind:
        case "send":
            more = group.send_s_per_byte - plain.send_s_per_byte
        case "all_to_all":
            more = group.all_to_all_s_per_byte() - plain.all_to_all_s_per_byte()
        case _:
            rounds = 2 if kind == "all_reduce" else 1
            more = rounds * (group.ring_s_per_byte - plain.ring_s_per_byte)
    return np.maximum(more, 0.0)


def _slower_s(kind: CollectiveKind, timed_s: Floats, full_bytes: Floats, group: Group, slow: SlowLinks) -> Floats:
    """What was timed on good links, over one that is late in each step, and passes its bytes no faster than it can."""
    rounds = {"all_reduce": 2}.get(kind, 1)
    steps = np.minimum(group.num_ranks - 1, 1) if kind == "send" else rounds * (group.num_ranks - 1)
    across = group.crosses_nodes
    links = group.inter_node_link.bandwidth_bytes_per_s, group.intra_node_link.bandwidth_bytes_per_s
    passed_bytes = full_bytes * steps / (1 if kind == "send" else group.num_ranks)
    least_s = np.where(slow.slowdown > 1, passed_bytes * slow.slowdown / np.where(across, *links), 0.0)
    return np.maximum(timed_s, least_s) + steps * slow.delay_s


def _lines(link: Link, kind: CollectiveKind) -> list[MeasuredCollective]:
    return sorted((line for line in link.measured if line.kind == kind), key=lambda line: line.num_ranks)


def _on_lines(lines: Sequence[MeasuredCollective], full_bytes: Floats, group: Group) -> Floats:
    ranks = [line.num_ranks for line in lines]
    beyond = np.maximum(1.0, (group.num_ranks - 1) / (ranks[-1] - 1))
    start_s = np.interp(group.num_ranks, ranks, [line.start_s for line in lines])
    s_per_byte = np.interp(group.num_ranks, ranks, [line.s_per_byte for line in lines])
    seconds: Floats = np.where(group.num_ranks > 1, beyond * (start_s + full_bytes * s_per_byte), 0.0)
    return seconds
