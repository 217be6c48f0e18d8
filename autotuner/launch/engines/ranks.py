"""EngineRanks: shows a job of an engine to ``follow`` as if its ranks were local."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import structlog

from autotuner.core.node_line import NodeLine
from autotuner.core.trial import EngineJobPhase, FailureKind, Stopped, TrialFailure
from autotuner.launch.contract import LEFT_ALONE, AttemptEnd, Ending
from autotuner.launch.engines.engine import Engine, EngineUnavailable, JobStatus
from autotuner.launch.engines.registration import EngineRegistration
from autotuner.launch.lines import NodeOutputs
from autotuner.launch.local import says_full
from autotuner.launch.node_processes import if_port_taken

_READ_S = 0.1
"""Seconds for which one read of the output is reused: more frequent requests do not read again."""

_LAST_WORDS_S = 5.0
"""Seconds that the last output gets to arrive after the engine says that the job is over."""

_LEAVING_S = 5.0
"""Seconds that ranks get to exit by themselves after they have measured; ending the job through the engine takes
longer."""

_TIDYING_S = 10.0
"""Seconds that a job gets to end by itself after its last node reported its end, since the engine has to clean up
too."""

_PEERS_S = 10.0
"""Seconds that nodes get to report their end after one node failed or a rank gave a reason. Without this limit,
trainers on NCCL would wait for minutes."""

_OF_A_LOST_PEER = (FailureKind.COMMUNICATION, FailureKind.TIMEOUT, FailureKind.CRASH)
"""Kinds of failure that ranks report when a peer's node is gone, long before the engine reports the lost node."""

T = TypeVar("T")

_log = structlog.get_logger(__name__)


class EngineRanks:
    """The ranks of a trial that run as one job of an engine, such as Slurm.

    Args:
        engine: The engine that runs the job.
        registration: The engine as its operator registered it.
        handle: The engine's handle of the job.
        num_nodes: Number of nodes of the job.
        ranks_per_node: Number of ranks on each node.
        status: State of the job as the engine last reported it.

    Attributes:
        status: State of the job as the engine last reported it.
    """

    def __init__(
        self,
        engine: Engine,
        registration: EngineRegistration,
        handle: str,
        *,
        num_nodes: int,
        ranks_per_node: int,
        status: JobStatus,
    ) -> None:
        self._engine = engine
        self._name = registration.name
        self._settings = registration.settings
        self._handle = handle
        self._outputs = NodeOutputs(num_nodes, ranks_per_node)
        self._offsets = [0] * num_nodes
        self._unread: list[NodeLine] = []
        self._read_at = 0.0
        self._looked_at = self._answered_at = time.monotonic()
        self._is_out_of_reach = False
        self.peers_s = min(_PEERS_S, self._settings.patience_s)
        self.status = status

    def has_ended(self) -> bool:
        """Return True if all nodes or the engine reported the end, or if the engine has not answered for too long."""
        now = time.monotonic()
        if now - self._read_at >= _READ_S:
            self._read_at = now
            self._read()
        if self._outputs.has_ended:
            return True
        if now - self._looked_at >= self._settings.poll_s:
            self._looked_at = now
            self._look()
        if self.status.phase.is_over:  # an engine may know that before the last of the output has arrived
            self._await_ends(_LAST_WORDS_S)
            return True
        self._is_out_of_reach = now - self._answered_at > self._settings.patience_s
        return self._is_out_of_reach

    def poll(self) -> Sequence[NodeLine]:
        """Return the lines that the nodes printed since the last call, as far as they have arrived."""
        lines, self._unread = self._unread, []
        return lines

    def end(self, why: Ending) -> AttemptEnd:
        """End the job, and return how it ended.

        The method does not cancel the job if its nodes end by themselves, or if another service will follow the job.
        """
        if not (isinstance(why, Stopped) and why.reason in LEFT_ALONE):
            self._await_ends(_LEAVING_S if why == "measured" else 0.0)
            has_left = self._outputs.has_ended and self._leaves_by_itself()
            self._note_interruption()  # before the launcher itself asks the nodes to end
            if self.status.phase is EngineJobPhase.LOST or not has_left:
                self._cancel()  # a lost job too: its engine may have queued it again
        return self._outputs.attempt_end(timed_out=why == "timeout", detail=self.status.detail)

    def explain(self, failure: TrialFailure) -> TrialFailure | Stopped:
        """Return ``failure``, or ``Stopped`` if the trial failed only because its job lost nodes or its engine."""
        if failure.kind in _OF_A_LOST_PEER:
            self._miss()
        if self.status.phase is EngineJobPhase.LOST:
            return _interrupted(f"{self._name} lost the job: {self.status.detail}")
        if self._is_out_of_reach:
            return _interrupted(f"{self._name} no longer answers")
        if stopped := if_port_taken(failure):
            return stopped
        if failure.kind == FailureKind.CRASH and says_full(failure):
            return _interrupted(f"the disk of a node is full: {failure.message}")
        if self.status.is_out_of_memory and failure.kind in (FailureKind.CRASH, FailureKind.COMMUNICATION):
            message = f"{self._name} ended the job because of its memory: {self.status.detail}"
            return replace(failure, kind=FailureKind.OOM, message=message)
        return failure

    def _note_interruption(self) -> None:
        """Mark the job as lost if somebody else sent SIGTERM to its nodes and no node failed before that."""
        nodes = self._outputs.told_to_end
        if not nodes or self.status.phase is EngineJobPhase.LOST:
            return
        detail = f"node{'s' if len(nodes) > 1 else ''} {_listed(nodes)} received SIGTERM, and not from the autotuner"
        if self.status.phase.is_over and self.status.detail:
            detail = f"{self.status.detail}: {detail}"
        self.status = JobStatus(phase=EngineJobPhase.LOST, detail=detail)

    def _miss(self) -> None:
        """Mark an ended job as lost if some nodes reported how they ended and another never did."""
        if self.status.phase is EngineJobPhase.LOST or not self._outputs.ends:
            return
        self._await_ends(_LAST_WORDS_S)
        if silent := self._outputs.silent:
            detail = f"node{'s' if len(silent) > 1 else ''} {_listed(silent)} stopped reporting"
            self.status = JobStatus(phase=EngineJobPhase.LOST, detail=detail)

    def _leaves_by_itself(self) -> bool:
        deadline = time.monotonic() + min(_TIDYING_S, self._settings.patience_s)
        while time.monotonic() < deadline:
            self._look()
            if self.status.phase.is_over:
                return True
            time.sleep(min(self._settings.poll_s, 0.5))
        return False

    def _cancel(self) -> None:
        is_lost, deadline = self.status.phase is EngineJobPhase.LOST, time.monotonic() + self._settings.patience_s
        while (is_gone := self._asked(partial(self._engine.cancel, self._handle))) is None:
            if time.monotonic() > deadline:
                break
            time.sleep(self._settings.poll_s)
        if not is_gone:
            _log.error("engine.job_left", handle=self._handle)
        if not is_gone and not is_lost:
            self._look()  # an engine that cannot end a job may know by now that its nodes are out of reach
        self._read()

    def _await_ends(self, seconds: float) -> None:
        """Read the output until every node has reported its end, for at most ``seconds``."""
        deadline = time.monotonic() + min(seconds, self._settings.patience_s)
        self._read()
        while not self._outputs.has_ended and time.monotonic() < deadline:
            time.sleep(_READ_S)
            self._read()

    def _read(self) -> None:
        for node, offset in enumerate(self._offsets):
            if chunk := self._asked(partial(self._engine.read, self._handle, node, offset)):
                self._offsets[node] += len(chunk)
                self._unread += self._outputs.read(node, chunk)

    def _look(self) -> None:
        if (status := self._asked(partial(self._engine.look, self._handle))) is not None:
            self.status = status
            self._answered_at = time.monotonic()

    def _asked(self, ask: Callable[[], T]) -> T | None:
        """Ask the engine and return its answer; None if it does not answer now."""
        try:
            return ask()
        except EngineUnavailable as error:
            _log.warning("engine.unavailable", handle=self._handle, error=str(error))
            return None


def _listed(nodes: Sequence[int]) -> str:
    return ", ".join(map(str, nodes))


def _interrupted(detail: str) -> Stopped:
    return Stopped(reason="infrastructure", detail=detail)
