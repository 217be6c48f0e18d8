"""Time of sends between pipeline stages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from autotuner.core.choices import P2PTransport, PipelineSchedule
from autotuner.core.columns import Booleans, Floats, Integers, LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.placement import hop_crosses
from autotuner.core.stages import stages_of_rank
from autotuner.costmodel.communication.collectives import send_s
from autotuner.costmodel.communication.group import DEAD_S, Group, SlowLinks, classes_first, slowdown
from autotuner.costmodel.communication.layout_groups import pipeline_group
from autotuner.costmodel.layer.model_work import ModelWork
from autotuner.costmodel.layer.work import Passes
from autotuner.costmodel.shared.micro_batch import hidden_bytes, hidden_split
from autotuner.costmodel.shared.stages import stage_load


@dataclass(frozen=True, slots=True, kw_only=True)
class Hops:
    """Seconds of one micro-batch's sends between neighbouring pipeline ranks, of shape (layouts, hops).

    Hop i joins ranks i and i + 1; the last hop joins the last rank and the first. A send blocks the sending rank for
    ``blocks_s``, and arrives ``flies_s`` later.
    """

    blocks_s: Floats
    """Time for which a send blocks the sending rank: on a slow link with inline sends, or for the copy to a
    delegate."""
    flies_s: Floats
    """Time of the transfer, which runs during computation."""
    receives_s: Floats
    """Time for which the receiving rank is blocked: the copy from a delegate."""
    num_delegates: Integers
    """Number of delegate processes that send in turn, each busy for as long as its transfer takes; 0 with inline
    sends."""

    @classmethod
    def of(cls, x: LayoutColumns, job: Job) -> Hops:
        """Return the times of sends on the cluster's links in their present state: some of them may be degraded.

        All layouts must have more than one pipeline rank.
        """
        healthy = cls.healthy(x, job)
        delayed_s, slower = _ailing(x, job)
        group, sent = pipeline_group(x, job.cluster), sent_bytes(x, job)
        inline_s = np.stack(list(_inline_s(sent, group, delayed_s, slower)), axis=1)
        extra_s = inline_s - send_s(sent, group)[:, None]  # the extra time of the link blocks the sending stream
        blocks_s = np.maximum(healthy.blocks_s + extra_s, 0.0)
        if not x.p2p_transport.any():
            return replace(healthy, blocks_s=blocks_s)
        is_delegated = _are_delegated(x, delayed_s, slower)[:, None]
        transfer = delegated_transfer(sent, job)
        carried_s = transfer.carried_s[:, None] + np.where(delayed_s < DEAD_S, delayed_s, 0.0)
        carried_s = np.maximum(carried_s, np.where(slower > 1, inline_s, 0.0))
        copies_s = np.broadcast_to(transfer.copy_s[:, None], carried_s.shape)
        return cls(
            blocks_s=np.where(is_delegated, copies_s, blocks_s),
            flies_s=np.where(is_delegated, carried_s, healthy.flies_s),
            receives_s=np.where(is_delegated, copies_s, 0.0),
            num_delegates=np.where(is_delegated[:, 0], x.num_delegates, 0),
        )

    @classmethod
    def healthy(cls, x: LayoutColumns, job: Job) -> Hops:
        """Return the times of sends on nominal links, without delegates (separate processes that send for a rank)."""
        seconds = _between_stages_s(x, job)
        each_s = np.repeat(seconds[:, None], int(x.pipeline_parallel_degree.max()), axis=1)
        nothing = np.zeros_like(each_s)
        blocks = job.stack.blocks_sends
        return cls(
            blocks_s=each_s if blocks else nothing,
            flies_s=nothing if blocks else each_s,
            receives_s=nothing,
            num_delegates=np.zeros(len(x), dtype=np.int64),
        )

    def take(self, rows: Integers, num_hops: int) -> Hops:
        """Return the first ``num_hops`` hops (pairs of neighbouring pipeline ranks) of the layouts in these rows.

        Args:
            rows: Row numbers of the layouts.
            num_hops: Number of hops to return.
        """
        return Hops(
            blocks_s=self.blocks_s[rows, :num_hops],
            flies_s=self.flies_s[rows, :num_hops],
            receives_s=self.receives_s[rows, :num_hops],
            num_delegates=self.num_delegates[rows],
        )


def _are_delegated(x: LayoutColumns, delayed_s: Floats, slower: Floats) -> Booleans:
    """Return the layouts in which delegates send.

    In a planned pipeline they do so only if a link between stages is degraded.
    """
    used = np.arange(delayed_s.shape[1]) < x.pipeline_parallel_degree[:, None] - 1
    ails = (used & ((delayed_s > 0) | (slower > 1))).any(axis=1)
    is_fixed = x.pipeline_schedule != PipelineSchedule.ADAPTIVE
    found: Booleans = (x.p2p_transport == P2PTransport.DELEGATED) & (is_fixed | ails)
    return found


def sent_bytes(x: LayoutColumns, job: Job) -> Floats:
    """Return the bytes that one rank sends to the next stage per micro-batch: its part of the hidden states."""
    size: Floats = hidden_bytes(x, job) / hidden_split(x)
    return size


def _between_stages_s(x: LayoutColumns, job: Job) -> Floats:
    return send_s(sent_bytes(x, job), pipeline_group(x, job.cluster)) + job.stack.send_wait_s


def _ailing(x: LayoutColumns, job: Job) -> tuple[Floats, Floats]:
    """Return the additional delay of each hop on degraded links, and the time of a byte relative to a nominal link.

    The job waits for the slowest of the pipelines that run in parallel. States of single links replace those of their
    class.
    """
    num_hops = int(x.pipeline_parallel_degree.max())
    delay_s, slower, is_named = (np.zeros((len(x), num_hops)) for _ in range(3))
    slower += 1.0
    layouts = cast("Layout", x)
    for health in classes_first(job.cluster):
        known_s, factor = DEAD_S if health.is_dead else health.delay_s, slowdown(health, job.cluster)
        for hop in range(num_hops):
            over = np.broadcast_to(np.asarray(hop_crosses(layouts, hop, health, job.cluster)), len(x))
            replaces = over & ((health.ends is None) | (is_named[:, hop] == 0))
            joins = over & ~replaces
            delay_s[:, hop] = np.where(replaces, known_s, np.maximum(delay_s[:, hop], joins * known_s))
            slower[:, hop] = np.where(replaces, factor, np.maximum(slower[:, hop], joins * factor))
            is_named[:, hop] += over & (health.ends is not None)
    return delay_s, slower


def _inline_s(sent: Floats, group: Group, delay_s: Floats, slower: Floats) -> Iterator[Floats]:
    """Yield the time of one send over each hop of the pipeline."""
    healthy_s = send_s(sent, group)
    for hop in range(delay_s.shape[1]):
        slow = SlowLinks(delay_s=delay_s[:, hop], slowdown=slower[:, hop])
        ails = bool(slow.delay_s.any() or (slow.slowdown != 1).any())
        yield send_s(sent, replace(group, slow=slow)) if ails else healthy_s


HOST_BYTES_PER_S = 1.5e9
"""Bandwidth of one delegate that sends between hosts by gloo. It is computed from iteration times that the authors of
arXiv 2504.19232 logged on H800, with and without delegation. For 7B, 30B and 60B, the difference per send is 7, 12 and
15 ms for 10, 17 and 23 MB, which is 1.4 to 1.6 GB/s; a step has 2 (p - 1) sends one after the other. For 14B it is only
1.4 ms for 10 MB, because most sends are hidden."""

START_S = 1e-4
"""Start of a delegated transfer: a signal that another process polls for, twice. It is an assumption."""

COPY_BYTES_PER_S = {"cuda": 25e9, "rocm": 25e9, "cpu": 4e9}
"""Bandwidth between a device and pinned memory: PCIe 4.0 x16, 32 GB/s minus its protocol; on CPU cores, of a copy
within memory. Devices with faster copies save too little time to matter."""

_SLOWEST_COPY = 4e9


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegatedTransfer:
    """The time of one transfer by a delegate (a separate process that sends for a rank) on nominal links."""

    copy_s: Floats
    """Time of a copy on the sending rank and on the receiving rank. Neither rank computes during its copy."""
    carried_s: Floats
    """Time for which a delegate is busy while the ranks compute."""


def delegated_transfer(sent_bytes: Floats, job: Job) -> DelegatedTransfer:
    """Return the time that a delegate (a separate process that sends for a rank) needs for ``sent_bytes`` bytes.

    The formulas were not compared with measurements. Each prediction that uses them says so.
    """
    kind = job.cluster.accelerator.kind
    return DelegatedTransfer(
        copy_s=sent_bytes / COPY_BYTES_PER_S.get(kind, _SLOWEST_COPY),
        carried_s=START_S + sent_bytes / HOST_BYTES_PER_S,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePasses:
    """Seconds of one micro-batch's passes in each pipeline stage, as columns of shape (layouts, stages)."""

    forward_s: Floats
    input_s: Floats
    weight_s: Floats

    @classmethod
    def of(
        cls, x: LayoutColumns, job: Job, passes: ModelWork[Passes], rows: Integers, rank_of: Integers
    ) -> StagePasses:
        """Return the seconds of passes in each stage, for some layouts of a table.

        These layouts must have equally many stages and equally many ranks.

        Args:
            x: All layouts of the table.
            job: The job.
            passes: Passes of the whole table.
            rows: Numbers of the layouts' rows in the table.
            rank_of: Pipeline rank of each stage.
        """
        num_stages = len(rank_of)
        repeated = np.repeat(rows, num_stages)
        stage, rank = (np.tile(one, len(rows)) for one in (np.arange(num_stages), rank_of))
        load = stage_load(x.take(repeated), job, stage, rank)
        taken = replace(passes, which=passes.which[repeated]).on(load)
        shape = len(rows), num_stages
        return cls(
            forward_s=np.maximum(taken.forward_s, 0.0).reshape(shape),
            input_s=np.maximum(taken.input_s, 0.0).reshape(shape),
            weight_s=np.maximum(taken.weight_s, 0.0).reshape(shape),
        )


def rank_of_stages(layout: Layout) -> Integers:
    """Return the pipeline rank of each stage of a layout, as an array with one entry per stage."""
    rank_of = np.empty(layout.num_stages, dtype=np.int64)
    for rank in range(layout.pipeline_parallel_degree):
        rank_of[list(stages_of_rank(layout, rank))] = rank
    return rank_of
