"""Store: sweeps and trials, and the stores of everything else."""

from __future__ import annotations

from sqlalchemy import Engine

from autotuner.core.errors import StoreUnavailable
from autotuner.store.access import AccessStore
from autotuner.store.announcements import AnnouncementStore
from autotuner.store.comments import CommentStore
from autotuner.store.control import ControlStore
from autotuner.store.descriptions import DescriptionStore
from autotuner.store.engine import make_engine, writing
from autotuner.store.health import Health
from autotuner.store.history import HistoryStore
from autotuner.store.optimizer_studies import OptimizerStudyStore
from autotuner.store.regression_gates import GATE_ROWS, RegressionGateStore
from autotuner.store.retention import Retention
from autotuner.store.retunes import RETUNE_ROWS, RetuneStore
from autotuner.store.runs import ROWS, RunStore
from autotuner.store.schema import current_revision, memory_engine, why_unfit, write_again
from autotuner.store.sweeps import SWEEP_ROWS, SweepStore
from autotuner.store.trials import TrialStore

_ANSWER_S = 15.0
"""Seconds to wait for an answer: far longer than any of our statements takes, and about as long as a user waits for a
page."""


def open_store(url: str, *, answer_s: float = _ANSWER_S) -> Store:
    """Return the store in the database with that URL. It connects to the database at the first call of a method.

    The arguments and the errors are those of ``make_engine``.
    """
    return Store(make_engine(url, answer_s=answer_s))


def memory_store() -> Store:
    """Return an empty store in this process's memory, for tests and for requests that store nothing."""
    return Store(memory_engine())


class Store(SweepStore, TrialStore):
    """All data of the service, on SQLite or PostgreSQL.

    Every method is one transaction and may be called from any thread. A database that cannot be reached or written
    raises ``StoreUnavailable``. An id that is not stored raises ``NotFound``.

    Attributes:
        runs: The queue of durable runs.
        descriptions: Models, clusters and profiles by name, and checks of clusters.
        control: Changes that people make to existing sweeps.
        comments: Comments of people on sweeps and trials.
        retunes: Scheduled retunings and their runs.
        regression_gates: Performance regression gates and their baselines.
        optimizer_studies: Optimizer studies and their trials.
        announcements: Announcements of outcomes, webhooks that receive them, and their deliveries.
        history: Measurements of the trials of all sweeps.
        retention: Removal of old records.
        health: Gauges and incidents that an operator watches, and the known workers.
        access: Tokens of callers, sessions of browsers, use of quotas, and the audit log.
    """

    def __init__(self, engine: Engine) -> None:
        rows = {**ROWS, "sweep": SWEEP_ROWS, "gate": GATE_ROWS, "retune": RETUNE_ROWS}
        self.runs = RunStore(engine, rows)
        super().__init__(engine, self.runs)
        self.descriptions = DescriptionStore(engine, self.runs)
        self.control = ControlStore(engine, self.runs)
        self.comments = CommentStore(engine, self.runs)
        self.retunes = RetuneStore(engine, self.runs)
        self.regression_gates = RegressionGateStore(engine, self.runs)
        self.optimizer_studies = OptimizerStudyStore(engine, self.runs)
        self.announcements = AnnouncementStore(engine, self.runs)
        self.history = HistoryStore(engine, self.runs)
        self.retention = Retention(engine, self.runs)
        self.health = Health(engine, self.runs)
        self.access = AccessStore(engine, self.runs)

    def check(self) -> str:
        """Check that the database can be used and written, and return its schema revision.

        Raises:
            StoreUnavailable: The database does not answer, is not migrated, or cannot be written, for example because
                its disk is full.
        """
        with writing(self._engine) as connection:
            revision = current_revision(connection)
            if revision is not None:
                write_again(connection, revision)
        if refusal := why_unfit(revision):
            raise StoreUnavailable(refusal)
        assert revision is not None
        return revision

    def close(self) -> None:
        """Close all connections to the database. The store must not be used afterwards."""
        self._engine.dispose()
