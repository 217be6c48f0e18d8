"""Engines that a cluster may name: the kinds that exist, and the engines that an operator registered in a TOML file."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from autotuner.core import documents
from autotuner.core.cluster import LOCAL, SIMULATED, Cluster
from autotuner.core.errors import InvalidInput
from autotuner.core.health import EngineStanding
from autotuner.core.value import Count, Positive, require_one_of, value
from autotuner.launch.engines.engine import Engine, EngineRefused, EngineUnavailable
from autotuner.launch.engines.kubernetes_objects import KubernetesSettings
from autotuner.launch.engines.processes import ProcessEngine, ProcessSettings
from autotuner.launch.engines.ray import RayEngine
from autotuner.launch.engines.ray_api import RaySettings
from autotuner.launch.engines.slurm import SlurmEngine
from autotuner.launch.engines.slurm_job import SlurmSettings
from autotuner.launch.simulation import SCENARIOS

# The kinds of engine: the settings of each, and the function that creates it.


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of engine, such as Slurm: the type of its settings, and a function that creates the engine."""

    settings: type[Any]
    """Dataclass of the settings that only this kind of engine has."""
    make: Callable[[str, Any], Engine]
    """Function that creates the engine from its registered name and its settings; it imports the engine's module
    itself."""


def _kubernetes(name: str, settings: KubernetesSettings) -> Engine:
    from autotuner.launch.engines.kubernetes import KubernetesEngine  # noqa: PLC0415  # its client takes half a second

    return KubernetesEngine(name, settings)


KINDS: Mapping[str, Kind] = {
    "kubernetes": Kind(KubernetesSettings, _kubernetes),
    "processes": Kind(ProcessSettings, ProcessEngine),
    "ray": Kind(RaySettings, RayEngine),
    "slurm": Kind(SlurmSettings, SlurmEngine),
}


# Engines as their operator registered them, in a TOML file that only the operator writes.

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@value
class EngineSettings:
    """The settings that an operator can give for every kind of engine: queues, limits and environment variables."""

    queues: tuple[str, ...] = ()
    """Queues or partitions that clusters may name; a cluster that names none uses the first."""
    max_parallel_trials: Count = 1
    """Maximum number of jobs of one sweep that wait or run at the same time."""
    poll_s: Positive = 2.0
    """Seconds between two status requests about one job."""
    patience_s: Positive = 600.0
    """Seconds for which the engine may be silent before a job on it counts as lost."""
    environment: dict[str, str] = field(default_factory=dict)
    """Environment variables that every rank gets, such as ``NCCL_SOCKET_IFNAME``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRegistration:
    """The table in which an operator registered an engine (such as a Slurm cluster): its name, kind and settings."""

    name: str
    kind: str
    settings: EngineSettings
    own: Any
    make: Kind

    def engine(self) -> Engine:
        """Create and return the object that sends requests to the engine, with the registered settings."""
        return self.make.make(self.name, self.own)

    def placed(self, cluster: Cluster) -> Cluster:
        """Return the cluster with a queue for its jobs: the queue that it names, else the first queue of the engine."""
        queues = self.settings.queues
        return replace(cluster, queue=cluster.queue or (queues[0] if queues else ""))

    def refuses(self, cluster: Cluster) -> str | None:
        """Return a sentence if the cluster names a queue that this engine does not have; otherwise return None."""
        if not cluster.queue or cluster.queue in self.settings.queues:
            return None
        known = ", ".join(self.settings.queues) or "none"
        return f"the engine {self.name} has no queue {cluster.queue}; its queues are {known}"


def read_engines(path: Path, kinds: Mapping[str, Kind] = KINDS) -> dict[str, EngineRegistration]:
    """Read a TOML file in which an operator registers engines, one per table; return them by name, in the file's order.

    Raises:
        InvalidInput: A value is not legal. The error names the file, the engine, the key and the most similar legal
            value.
    """
    try:
        document = tomllib.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        rule = f"must be a TOML file that can be read ({error})"
        raise InvalidInput("AUTOTUNER_ENGINES", str(path), rule) from error
    return {name: _registration(name, table, path, kinds) for name, table in document.items()}


def _registration(name: str, table: Any, path: Path, kinds: Mapping[str, Kind]) -> EngineRegistration:
    try:
        if name in (LOCAL, SIMULATED) or not _NAME.fullmatch(name):
            rule = (
                f"must have only letters, digits, dots and hyphens, and must not be {LOCAL} or {SIMULATED}, "
                "which always exist"
            )
            raise InvalidInput("name", name, rule)
        if not isinstance(table, dict):
            raise InvalidInput(name, table, f"must be a table that begins with [{name}] and has the field kind")
        said = dict(table)
        word = said.pop("kind", None)
        if word == "emulated":
            raise InvalidInput("kind", word, "has another name since 2026", "processes")
        require_one_of("kind", word, kinds)
        common = {one.name for one in fields(EngineSettings)}
        return EngineRegistration(
            name=name,
            kind=word,
            settings=documents.read(EngineSettings, {key: said[key] for key in said if key in common}),
            own=documents.read(kinds[word].settings, {key: said[key] for key in said if key not in common}),
            make=kinds[word],
        )
    except InvalidInput as error:
        raise error.under(f"{path}: {name}") from error


# Engines that clusters may name: the built-in ones, and those that the operator registered.


_ALWAYS = {
    one.name: one
    for one in (
        EngineStanding(name=LOCAL, kind=LOCAL, answers=True, answer="the machine that runs the sweep"),
        EngineStanding(
            name=SIMULATED,
            kind=SIMULATED,
            answers=True,
            answer="the cost model, for dry runs: nothing that it says was measured",
            queues=tuple(SCENARIOS),
        ),
    )
}


def ask_engines(registered: Mapping[str, EngineRegistration], engines: Mapping[str, Engine]) -> list[EngineStanding]:
    """Ask all engines at once whether they answer, and return their states; built-in engines come first.

    ``engines`` holds the engine of each registration, by name. The call may take seconds.
    """
    with ThreadPoolExecutor(max(1, len(registered))) as threads:
        return list(_ALWAYS.values()) + list(
            threads.map(lambda one: _asked(one, engines[one.name]), registered.values())
        )


def _asked(registration: EngineRegistration, engine: Engine) -> EngineStanding:
    try:
        answers, answer = True, engine.check(registration.settings.queues)
    except (EngineRefused, EngineUnavailable) as error:
        answers, answer = False, str(error)
    return EngineStanding(
        name=registration.name,
        kind=registration.kind,
        queues=registration.settings.queues,
        max_parallel_trials=registration.settings.max_parallel_trials,
        answers=answers,
        answer=answer,
    )


def check_engine_named(cluster: Cluster, registered: Mapping[str, EngineRegistration]) -> None:
    """Raise an error unless the engine that the cluster names is registered and has the queue that the cluster names.

    A cluster need not name a queue.

    Raises:
        InvalidInput: The engine or the queue is not known. The error lists the known names.
    """
    names = [*_ALWAYS, *registered]
    require_one_of("engine", cluster.engine, names)
    is_there_anyway = cluster.engine in _ALWAYS
    queues = _ALWAYS[cluster.engine].queues if is_there_anyway else registered[cluster.engine].settings.queues
    if cluster.queue and not queues:
        raise InvalidInput("queue", cluster.queue, f"must be left out: {cluster.engine} has no queues")
    if cluster.queue:
        require_one_of("queue", cluster.queue, queues)
