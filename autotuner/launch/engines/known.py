"""Engines that clusters may name: those that are there anyway, and those that the operator registered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from difflib import get_close_matches

from autotuner.core.cluster import LOCAL, SIMULATED, Cluster
from autotuner.core.errors import InvalidInput
from autotuner.launch.engines.engine import Engine, EngineRefused, EngineUnavailable
from autotuner.launch.engines.registration import EngineRegistration
from autotuner.launch.simulation.scenario import SCENARIOS


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStanding:
    """An engine, and whether it answers.

    Attributes:
        name: What a cluster's ``engine`` says.
        kind: Slurm, Kubernetes, Ray, emulated nodes; ``local`` and ``simulated`` are their own.
        queues: What a cluster's ``queue`` may say; the first is the default.
        max_parallel_trials: Jobs that may wait or run at once; null: as many as there is room for.
        answers: Whether it answered just now and has all of its queues.
        answer: What it said, with its version; or why it did not answer, or what it lacks.
    """

    name: str
    kind: str
    answers: bool
    answer: str
    queues: tuple[str, ...] = ()
    max_parallel_trials: int | None = None


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
    """All of them, asked at once, since each may take seconds; those that are there anyway first."""
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
    """The cluster names an engine that there is, and a queue of it.

    Raises:
        InvalidInput: It does not; with the names that there are.
    """
    names = [*_ALWAYS, *registered]
    if cluster.engine not in names:
        rule = f"must be one of {', '.join(names)}"
        raise InvalidInput("engine", cluster.engine, rule, _nearest(cluster.engine, names))
    is_there_anyway = cluster.engine in _ALWAYS
    queues = _ALWAYS[cluster.engine].queues if is_there_anyway else registered[cluster.engine].settings.queues
    if cluster.queue and cluster.queue not in queues:
        known = f"must be one of {', '.join(queues)}" if queues else f"must be left out: {cluster.engine} has no queues"
        raise InvalidInput("queue", cluster.queue, known, _nearest(cluster.queue, queues))


def _nearest(word: str, names: Sequence[str]) -> str | None:
    return next(iter(get_close_matches(word, names, 1, cutoff=0.0)), None)
