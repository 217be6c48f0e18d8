"""The door: every question that the product answers, one method each.

The command line asks it in its own process, and the service answers REST and pages by it. A question that stores
nothing touches no database, and importing this module imports none: SQLAlchemy comes with the store, when it is needed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.models import load_model
from autotuner.core.cluster import LOCAL, Cluster
from autotuner.core.errors import InvalidInput, NotFound
from autotuner.core.job import Job
from autotuner.core.model import TransformerSpec
from autotuner.requests import PlanCreate, PredictionRequest
from autotuner.search.answers import best_of_space, prediction_of_layout
from autotuner.search.asides import Asides, Inline
from autotuner.search.predictions import PredictionTable

if TYPE_CHECKING:
    from autotuner.core.profile import DeviceProfile
    from autotuner.core.run import Run
    from autotuner.ports import Names, Store
    from autotuner.search.learning.recollection import Recollection

PROFILE = "profile:"
"""Before the name of a profile, where a cluster's is expected."""


class NoNames:
    """Nothing is stored under any name: what is in the catalog is all there is."""

    def get_model(self, name: str) -> TransformerSpec:
        """No model has that name."""
        raise NotFound("model", name)

    def get_cluster(self, name: str) -> Cluster:
        """No cluster has that name."""
        raise NotFound("cluster", name)

    def get_profile(self, name: str) -> DeviceProfile:
        """No profile has that name."""
        raise NotFound("profile", name)


def _no_store() -> Store:
    raise AssertionError("what asks without a store needs none")


@dataclass(frozen=True, slots=True, kw_only=True)
class Autotuner:
    """The product as its users ask it.

    Attributes:
        stored_names: In the place of those that the store holds; None asks the store.
        open_store: Called once, when the store is first needed: a prediction needs none.
        asides: What may take long is computed by these.
    """

    stored_names: Names | None = field(default_factory=NoNames)
    open_store: Callable[[], Store] = _no_store
    asides: Asides = field(default_factory=Inline)
    _opened: list[Store] = field(default_factory=list, init=False)
    _recollections: list[Recollection] = field(default_factory=list, init=False)
    _opening: threading.Lock = field(default_factory=threading.Lock, init=False)

    def open(self) -> Store:
        """The one store of the application, opened unless it is."""
        with self._opening:
            if not self._opened:
                self._opened.append(self.open_store())
            return self._opened[0]

    @property
    def store(self) -> Store:
        """Sweeps, trials and whatever else is kept."""
        return self.open()

    @property
    def names(self) -> Names:
        """Models, clusters and profiles that were stored."""
        return self.stored_names or self.store

    # ------------------------------------------------------------------ names
    def model(self, name: str) -> TransformerSpec:
        """A stored model, else one of the catalog."""
        try:
            return self.names.get_model(name)
        except NotFound:
            return load_model(name)

    def cluster(self, name: str, *, is_measured: bool = True) -> Cluster:
        """A stored cluster, this machine (``local``), else a catalog accelerator with a count (``h100:64``).

        This machine and stored clusters are described by their profiles, if they have one; ``profile:NAME`` is this
        machine by a profile of another name.

        Args:
            name: Of the cluster.
            is_measured: False: this machine's cores are not measured, which takes seconds the first time.

        Raises:
            InvalidInput: The profile of that name is a stored cluster's, which is no machine.
        """
        if name == LOCAL:
            own = self._own_profile()
            return _this_machine(is_measured=is_measured) if own is None else _profiled_machine(own)
        if name.startswith(PROFILE):
            profile = self.names.get_profile(name.removeprefix(PROFILE))
            if profile.cluster:
                rule = f"is of nodes of the stored cluster {profile.cluster}, not of this machine"
                raise InvalidInput("cluster", name, rule, profile.cluster)
            return replace(_profiled_machine(profile), name=name)
        try:
            stored = self.names.get_cluster(name)
        except NotFound:
            return load_cluster(name)
        measured = self.cluster_profile(name)
        return stored if measured is None else _profiled(stored, measured)

    def would_measure(self, name: str) -> bool:
        """Return whether the cluster of that name is this machine, whose cores neither a profile nor a run measured."""
        from autotuner.launch.this_machine import has_to_measure  # noqa: PLC0415  # only where this machine is asked about

        return name == LOCAL and has_to_measure() and self._own_profile() is None

    def cluster_profile(self, name: str) -> DeviceProfile | None:
        """What a check measured of the stored cluster of that name."""
        try:
            profile = self.names.get_profile(name)
        except NotFound:
            return None
        return profile if profile.cluster == name else None

    def _own_profile(self) -> DeviceProfile | None:
        """The profile of this machine under its usual name, where it was taken on this host."""
        from autotuner.host.machine import is_this_host  # noqa: PLC0415  # as in ``_profiled``

        try:
            profile = self.names.get_profile(LOCAL)
        except NotFound:
            return None
        return profile if is_this_host(profile.host) else None

    # ------------------------------------------------------------------ predictions
    @property
    def recollection(self) -> Recollection:
        """What the stored trials teach."""
        from autotuner.search.learning.recollection import Recollection  # noqa: PLC0415  # only beside a store

        store = self.store
        with self._opening:
            if not self._recollections:
                self._recollections.append(Recollection(store.history))
            return self._recollections[0]

    def calibrated(self, job: Job, trainer: str | None = None) -> Job:
        """The job with what the stored trials say of its speed; as it is where nothing is stored."""
        return job if self.stored_names is not None else self.recollection.calibrated(job, trainer)

    def predict(self, request: PredictionRequest) -> PredictionTable:
        """Predict the layout of the request, or the best of its space.

        Raises:
            InvalidInput: A description breaks a rule, the space holds no legal layout or too many, or the format cannot
                say a value that was named.
            InvalidDocument: The layout cannot run, with every rule that it breaks.
            NotFound: A name is neither stored nor in the catalog.
        """
        question = request.resolved(self)
        if request.layout is None:
            return PredictionTable.answering(question.job, self.asides.search(best_of_space, question))
        return PredictionTable.of_one(question.job, self.asides.ask(prediction_of_layout, question, request.layout))

    def plan(self, request: PlanCreate, hear: Callable[[int, int], None] = lambda done, known: None) -> Run:
        """Compare whole clusters for a training run; the run is complete and stored nowhere.

        Args:
            request: Of clusters, with names still to be resolved.
            hear: Hears how many pieces of work are done, and how many there are as far as is known.

        Raises:
            InvalidInput: A description breaks a rule, or there are no clusters to compare, or too many.
            NotFound: A name is neither stored nor in the catalog.
        """
        from autotuner.core.run import Run, RunState  # noqa: PLC0415  # predictions need none of it
        from autotuner.search.planning.plan import PlanProgress, plan  # noqa: PLC0415
        from autotuner.search.planning.question import plan_id_of  # noqa: PLC0415

        asked, began_at, pieces = request.resolved(self), time.time(), PlanProgress()

        def count(done: int, known: int) -> None:
            nonlocal pieces
            pieces = PlanProgress(num_done=done, num_known=known)
            hear(done, known)

        found = plan(asked, self.asides, count)
        return Run(
            id=plan_id_of(asked),
            kind="plan",
            state=RunState.COMPLETE,
            subject="",
            created_by="",
            created_at=began_at,
            due_at=began_at,
            started_at=began_at,
            finished_at=time.time(),
            request=asked,
            progress=pieces,
            result=found,
            detail="computed",
        )

    def close(self) -> None:
        """Release what was opened."""
        for store in self._opened:
            store.close()


def _profiled(cluster: Cluster, profile: DeviceProfile) -> Cluster:
    from autotuner.core.profile import profiled  # noqa: PLC0415  # most predictions are of no measured machine

    return profiled(cluster, profile)


def _profiled_machine(profile: DeviceProfile) -> Cluster:
    """This machine by a profile, which has the peaks that a measurement would give."""
    return _profiled(_this_machine(is_measured=False), profile)


def _this_machine(*, is_measured: bool) -> Cluster:
    from autotuner.launch.this_machine import (  # noqa: PLC0415  # only where this machine is asked about
        detect_cluster,
        has_to_measure,
        unmeasured_cluster,
    )

    return (detect_cluster if is_measured or not has_to_measure() else unmeasured_cluster)()
