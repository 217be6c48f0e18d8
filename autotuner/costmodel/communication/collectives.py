"""Wire time of collectives: a start, a latency per step, and bytes over what long messages get of a link.

The alpha-beta model with one more term: a message is cut into chunks that follow each other. Few chunks leave the
pipeline empty for long, many pay the overhead of a chunk often; at the best number both cost the same, and together
``2 sqrt(ramp * transfer)``, with a ramp that belongs to the link.

Like NCCL, an all-reduce takes the faster of its algorithms at each size. ``bench/fit_links.py`` fits the constants and
prints the error of these laws on published benchmarks, in sample and left out. All times are what the wire needs; what
computation hides is in ``overlap``.
"""

from __future__ import annotations

import numpy as np

from autotuner.costmodel.columns import Floats
from autotuner.costmodel.communication.process_groups import Group

__all__ = ["all_gather_s", "all_reduce_s", "all_to_all_s", "reduce_scatter_s", "send_s"]


def all_gather_s(full_bytes: Floats, group: Group) -> Floats:
    """Seconds until every rank holds all ``full_bytes``, each having started with its shard; 0 for one rank."""
    return _pipelined_s(full_bytes * group.ring_s_per_byte, group.ring_latency_s, group)


def reduce_scatter_s(full_bytes: Floats, group: Group) -> Floats:
    """Seconds until every rank holds its shard of the sum of ``full_bytes`` of each; the all-gather backwards."""
    return all_gather_s(full_bytes, group)


def all_reduce_s(full_bytes: Floats, group: Group) -> Floats:
    """Seconds until every rank holds the sum of ``full_bytes`` of each, by the faster of two algorithms.

    A ring is a reduce-scatter and an all-gather with one start. A tree takes fewer steps: inside a node the switches
    themselves may add (NVLink SHARP), and between nodes its height grows with the logarithm of their number.
    """
    ring_s = _pipelined_s(2 * full_bytes * group.ring_s_per_byte, 2 * group.ring_latency_s, group)
    tree_s = _pipelined_s(full_bytes * group.tree_s_per_byte, group.tree_latency_s, group)
    return np.minimum(ring_s, tree_s)


def all_to_all_s(sent_bytes: Floats, group: Group) -> Floats:
    """Seconds to send an equal share of ``sent_bytes`` to every rank, in as many steps as a ring has."""
    return _pipelined_s(sent_bytes * group.all_to_all_s_per_byte, group.ring_latency_s, group)


def send_s(sent_bytes: Floats, group: Group) -> Floats:
    """Seconds to hand ``sent_bytes`` to a neighbour in the group over its slowest link; 0 for one rank."""
    seconds = _pipelined_s(sent_bytes * group.send_s_per_byte, group.step_s, group)
    return np.where(group.num_ranks > 1, seconds, 0.0)


def _pipelined_s(transfer_s: Floats, latency_s: Floats, group: Group) -> Floats:
    filling_s: Floats = 2 * np.sqrt(group.ramp_s * transfer_s)
    return group.start_s + latency_s + transfer_s + filling_s
