"""A rank of a trial: its place among the others, its report lines, and the kind of failure of an exception."""

from __future__ import annotations

import json
import os
import socket
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch.distributed import HashStore, Store  # type: ignore[attr-defined]  # exported, but not by name

from autotuner.core import codec
from autotuner.core.choices import RankPlacement
from autotuner.core.cluster import Cluster
from autotuner.core.node_line import TAGS, NodeLine, RankFailure
from autotuner.core.placement import Nodes
from autotuner.core.trial import COMMUNICATION, OUT_OF_LIMITED_MEMORY, OUT_OF_MEMORY, FailureKind
from autotuner.core.trial_spec import TrialSpec

_LONGEST_SILENCE_S = 120.0
"""Maximum seconds for which a collective of a short trial waits for a living peer that is not compiling; NCCL's first
collective takes tens of seconds at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankInfo:
    """The position of this process in a job: its rank, and the numbers of ranks in the job and on its host.

    By default, the process is the only one of its job.
    """

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    """Rank among the ``local_world_size`` processes of this host."""
    local_world_size: int = 1
    ranks_per_node: int | None = None
    """Number of ranks per node if this host emulates several nodes; None: it is one node."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> RankInfo:
        """Return the rank that torchrun's environment variables describe; without them, the only rank of a job."""
        if "RANK" not in environment:
            return cls()
        return cls(
            rank=int(environment["RANK"]),
            world_size=int(environment["WORLD_SIZE"]),
            local_rank=int(environment["LOCAL_RANK"]),
            local_world_size=int(environment["LOCAL_WORLD_SIZE"]),
        )

    def nodes(self, placement: RankPlacement) -> Nodes:
        """Return the number of nodes of the job, the ranks per node and the placement.

        The processes are numbered node by node, as torchrun does it.

        Args:
            placement: The way in which ranks are assigned to nodes.
        """
        ranks_per_node = self.ranks_per_node or self.local_world_size
        return Nodes(num_nodes=self.world_size // ranks_per_node, ranks_per_node=ranks_per_node, placement=placement)

    def playing(self, cluster: Cluster | None) -> RankInfo:
        """Return this rank as a rank of an emulated node, if this host runs all ranks of a cluster with several nodes.

        Args:
            cluster: The cluster to emulate; None: nothing is emulated, and the rank is returned unchanged.
        """
        is_one_host = self.local_world_size == self.world_size
        if cluster is None or cluster.world_size != self.world_size or not is_one_host or self.ranks_per_node:
            return self
        return replace(self, ranks_per_node=cluster.accelerators_per_node)

    def placed(self, placement: RankPlacement) -> RankInfo:
        """Return this rank with the rank number that the placement gives it.

        A placement is the way in which rank numbers are assigned to the processes of the nodes. The process itself
        stays on its host.
        """
        nodes = self.nodes(placement)
        return replace(self, rank=nodes.number_of(*divmod(self.rank, nodes.ranks_per_node)))

    def environment(self) -> dict[str, str]:
        """Return the environment variables that torchrun would have set, because some libraries read them."""
        return {
            "RANK": str(self.rank),
            "WORLD_SIZE": str(self.world_size),
            "LOCAL_RANK": str(self.local_rank),
            "LOCAL_WORLD_SIZE": str(self.local_world_size),
        }


def device_of(kind: Literal["cpu", "cuda"], rank_info: RankInfo) -> torch.device:
    """Return the device of this rank: the CPU, or the GPU with the local rank as its number."""
    return torch.device("cpu") if kind == "cpu" else torch.device("cuda", rank_info.local_rank)


def join_process_group(
    device: torch.device, rank_info: RankInfo, *, timeout_s: float, store: Store | None = None, compiles: bool = False
) -> None:
    """Initialise the default process group, with gloo on CPUs and nccl on GPUs.

    If a rank dies, every collective of the other ranks fails within the timeout.

    Args:
        device: The device of this rank.
        rank_info: The place of this rank in the job.
        timeout_s: Longest time of a collective, in seconds. A shorter built-in limit also applies, unless ``compiles``
            is True.
        store: The store through which the ranks find each other; None: torchrun's variables name the address. A single
            rank needs neither.
        compiles: True if the ranks compile layers. In a pipeline, ranks compile one after the other, so a collective
            may take longer.
    """
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if store is None and rank_info.world_size == 1:
        store = HashStore()
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        init_method="env://" if store is None else None,
        store=store,
        rank=rank_info.rank,
        world_size=rank_info.world_size,
        timeout=timedelta(seconds=timeout_s if compiles else min(timeout_s, _LONGEST_SILENCE_S)),
    )


def barrier(device: torch.device) -> None:
    """Wait until every rank has called this function and its device has finished its work; for gloo and nccl."""
    arrivals = torch.ones(1, device=device)
    dist.all_reduce(arrivals)
    arrivals.item()


def host_name() -> str:
    """Return the name of this machine. Ranks with the same name share the machine."""
    return socket.gethostname()


class Reporter:
    """Writes the reports of a rank as lines of a file.

    The first line is ``started``; the others are ``NodeLine`` values. Rank 0 writes all reports except failures. Any
    rank writes its failure before it dies. Each line is written at once to a file that is open for appending. So the
    lines of several processes never mix, and they remain after a process has died.
    """

    def __init__(self, path: Path, *, rank: int) -> None:
        self._path = path
        self._rank = rank

    def started(self, spec: TrialSpec, *, world_size: int) -> None:
        """Report that all ranks have joined the process group. Only rank 0 writes this report."""
        line = {"type": "started", "trial_id": spec.trial_id, "world_size": world_size, "layout": str(spec.layout)}
        if self._rank == 0:
            self._append(line)

    def report(self, value: NodeLine) -> None:
        """Report a value about the whole trial, such as a step or the measurement. Only rank 0 writes this report."""
        if self._rank == 0:
            self._append({"type": TAGS[type(value)], **codec.to_plain(value)})

    def failure(self, error: BaseException, *, memory_was_limited: bool = False) -> None:
        """Report that this rank is about to die. If several ranks do so, the first report shows the cause.

        Args:
            error: The exception that ends the rank.
            memory_was_limited: True if the process had a memory limit. Then more kinds of errors mean a lack of memory.
        """
        kind = classify(error, memory_was_limited=memory_was_limited)
        words = "".join(traceback.format_exception(error))
        failure = RankFailure(rank=self._rank, kind=kind, message=headline(error), traceback=words)
        self._append({"type": TAGS[RankFailure], **codec.to_plain(failure)})

    def _append(self, line: dict[str, Any]) -> None:
        text = json.dumps(line, allow_nan=False, separators=(",", ":")) + "\n"
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)


class NonFiniteLoss(ArithmeticError):
    """Raised when the loss is infinite or not a number. Further steps would be meaningless."""

    def __init__(self, step: int, loss: float) -> None:
        super().__init__(f"the loss of step {step} is {loss}")


def classify(error: BaseException, *, memory_was_limited: bool = False) -> FailureKind:
    """Return the kind of failure that an exception stands for, judged by its type, its message and its causes.

    Args:
        error: The exception.
        memory_was_limited: True if the process had a memory limit. Such a process may run out of memory in unusual
            ways, for example because there is no room for the stack of a new thread.
    """
    out_of_memory = OUT_OF_MEMORY + OUT_OF_LIMITED_MEMORY if memory_was_limited else OUT_OF_MEMORY
    causes = list(_chain(error))
    text = "\n".join(str(cause) for cause in causes)
    if _any_is(causes, NonFiniteLoss):
        return FailureKind.NUMERICS
    if _any_is(causes, MemoryError, torch.OutOfMemoryError) or _mentions(text, out_of_memory):
        return FailureKind.OOM
    if _any_is(causes, dist.DistError, ConnectionError, TimeoutError) or _mentions(text, COMMUNICATION):
        return FailureKind.COMMUNICATION
    return FailureKind.CRASH


def headline(error: BaseException) -> str:
    """Return an exception as one line for a table: its type and the first line of its message."""
    words = " ".join(str(error).split("\n", 1)[0].split())
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def _chain(error: BaseException | None) -> list[BaseException]:
    chain: list[BaseException] = []
    while error is not None and error not in chain:
        chain.append(error)
        error = error.__cause__ or error.__context__
    return chain


def _any_is(causes: list[BaseException], *kinds: type[BaseException]) -> bool:
    return any(isinstance(cause, kinds) for cause in causes)


def _mentions(text: str, phrases: tuple[str, ...]) -> bool:
    return any(phrase in text for phrase in phrases)
