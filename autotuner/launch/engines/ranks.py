"""The ranks of a job on an engine, as ``follow`` and the verdicts see ranks."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence

import structlog

from autotuner.core.trial import EngineJobPhase
from autotuner.launch.engines.engine import Engine, EngineUnavailable, JobStatus
from autotuner.launch.engines.output import JobOutput
from autotuner.launch.ranks import Death

_READ_S = 0.1
"""Looks at the output that follow each other faster are one."""

_LAST_WORDS_S = 5.0
"""What the output gets to arrive once the engine says that the job is over."""

_LEAVING_S = 10.0
"""What a job gets to end by itself after its last node has said that it did: an engine tidies up too."""

PEERS_S = 10.0
"""What nodes get to say how they ended once one ended badly, or a rank said why: trainers on NCCL would wait for
minutes."""

_log = structlog.get_logger(__name__)


class EngineRanks:
    """A job that runs, or has run, and what its nodes tell.

    Args:
        engine: Runs it.
        handle: What the engine calls it.
        output: What its nodes print.
        poll_s: How often the engine is asked.
        patience_s: How long an engine may not answer.

    Attributes:
        status: As the engine last said.
        is_out_of_reach: Whether it has not answered for longer than anybody waits.
    """

    def __init__(
        self, engine: Engine, handle: str, output: JobOutput, *, poll_s: float, patience_s: float, status: JobStatus
    ) -> None:
        self._engine = engine
        self._handle = handle
        self._output = output
        self._poll_s = poll_s
        self._patience_s = patience_s
        self._read_at = 0.0
        self._looked_at = time.monotonic()
        self._answered_at = time.monotonic()
        self._peers_leave_by = 0.0
        self.status = status
        self.is_out_of_reach = False

    @property
    def exit_code(self) -> int | None:
        """Of the first node that ended badly, else 0; None while one runs."""
        codes = [end.exit_code for _, end in sorted(self._output.ends.items())]
        bad = next((code for code in codes if code != 0), None)
        return bad if bad is not None else (0 if self._output.has_ended else None)

    @property
    def timed_out(self) -> bool:
        """Whether a node ran past the time limit."""
        return any(end.timed_out for end in self._output.ends.values())

    @property
    def oom_killed(self) -> bool:
        """Whether an out-of-memory killer struck on a node meanwhile."""
        return any(end.oom_killed for end in self._output.ends.values())

    def ended(self) -> bool:
        """Whether all nodes said so, or the engine does, or nobody can be asked any more."""
        now = time.monotonic()
        if now - self._read_at >= _READ_S:
            self._read_at = now
            self._pump()
        if self._output.has_ended or self._peers_are_late(now):
            return True
        if now - self._looked_at >= self._poll_s:
            self._looked_at = now
            self._look()
        if self.status.phase.is_over:
            self._hear_last_words()
            return True
        self.is_out_of_reach = now - self._answered_at > self._patience_s
        return self.is_out_of_reach

    def _peers_are_late(self, now: float) -> bool:
        """Return whether a node ended badly without naming a dead rank, and the others had time to end of it.

        Where a rank is named, ``follow`` knows whether the others may still say why it died.
        """
        if not self._peers_leave_by and any(
            end.exit_code != 0 and not end.deaths for end in self._output.ends.values()
        ):
            self._peers_leave_by = now + PEERS_S
        return 0.0 < self._peers_leave_by < now

    def deaths(self) -> Sequence[Death]:
        """Ranks that the nodes' agents found dead, without those that were told to leave."""
        found = (death for _, end in sorted(self._output.ends.items()) for death in end.deaths)
        return [death for death in found if death.exit_code != -signal.SIGTERM]

    def log(self) -> str:
        """The last that the nodes printed, and what the engine said of the job."""
        return "\n".join(filter(None, (self._output.text, self.status.detail)))

    def end(self, *, grace_s: float) -> tuple[int, ...]:
        """End the job, unless its nodes end by themselves; engines name no processes that they could not end."""
        self._await_ends(grace_s)
        has_left = self._output.has_ended and self._leaves_by_itself()
        self._note_interruption()  # before this side itself tells nodes to end
        is_lost = self.status.phase is EngineJobPhase.LOST
        if has_left and not is_lost:
            return ()
        is_gone = self._cancelled()  # a lost job too: its engine may have queued it again
        if not is_gone:
            _log.error("engine.job_left", handle=self._handle)
        if not is_gone and not is_lost:
            self._look()  # an engine that cannot end a job may know by now that its nodes are out of reach
        self._pump()
        return ()

    def miss(self) -> None:
        """Take a job that has been ended for lost where a node said how it ended and another never did."""
        if self.status.phase is EngineJobPhase.LOST or not self._output.ends:
            return
        self._await_ends(min(_LAST_WORDS_S, self._patience_s))
        if silent := self._output.silent:
            nodes = ", ".join(map(str, silent))
            detail = f"node {nodes} fell silent" if len(silent) == 1 else f"nodes {nodes} fell silent"
            self.status = JobStatus(phase=EngineJobPhase.LOST, detail=detail)

    def _note_interruption(self) -> None:
        """Take the job for lost if SIGTERM ended its nodes and no node failed without it; nobody here has sent any."""
        told = [node_rank for node_rank, end in sorted(self._output.ends.items()) if end.told_to_end]
        failed = any(end.exit_code != 0 and not end.told_to_end for end in self._output.ends.values())
        if not told or failed or self.status.phase is EngineJobPhase.LOST:
            return
        nodes = f"node{'s' if len(told) > 1 else ''} {', '.join(map(str, told))}"
        detail = f"{nodes} got SIGTERM, and not from the autotuner"
        if self.status.phase.is_over and self.status.detail:
            detail = f"{self.status.detail}: {detail}"
        self.status = JobStatus(phase=EngineJobPhase.LOST, detail=detail)

    def _leaves_by_itself(self) -> bool:
        deadline = time.monotonic() + min(_LEAVING_S, self._patience_s)
        while time.monotonic() < deadline:
            self._look()
            if self.status.phase.is_over:
                return True
            time.sleep(min(self._poll_s, 0.5))
        return False

    def _cancelled(self) -> bool:
        deadline = time.monotonic() + self._patience_s
        while True:
            try:
                return self._engine.cancel(self._handle)
            except EngineUnavailable as error:
                if time.monotonic() > deadline:
                    _log.error("engine.unavailable", handle=self._handle, error=str(error))
                    return False
                time.sleep(self._poll_s)

    def _hear_last_words(self) -> None:
        """An engine may know that a job is over before the last of its output has arrived."""
        self._await_ends(min(_LAST_WORDS_S, self._patience_s))

    def _await_ends(self, seconds: float) -> None:
        """Hear the nodes until each has said how it ended, but no longer than that."""
        deadline = time.monotonic() + seconds
        self._pump()
        while not self._output.has_ended and time.monotonic() < deadline:
            time.sleep(_READ_S)
            self._pump()

    def _pump(self) -> None:
        try:
            self._output.pump()
        except EngineUnavailable as error:
            _log.warning("engine.unavailable", handle=self._handle, error=str(error))

    def _look(self) -> None:
        try:
            self.status = self._engine.look(self._handle)
            self._answered_at = time.monotonic()
        except EngineUnavailable as error:
            _log.warning("engine.unavailable", handle=self._handle, error=str(error))
