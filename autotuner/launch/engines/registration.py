"""Engines as their operator registered them, in a TOML file that only the operator writes."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from autotuner.core import documents
from autotuner.core.cluster import LOCAL, SIMULATED, Cluster
from autotuner.core.errors import InvalidInput
from autotuner.core.value import Count, Positive, value
from autotuner.launch.engines.engine import Engine
from autotuner.launch.engines.kinds import KINDS, Kind

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@value
class EngineSettings:
    """What an operator may set of an engine of any kind.

    Attributes:
        queues: Those that clusters may name (partitions, queues of Kueue); a cluster that names none gets the first.
        max_parallel_trials: Jobs that wait or run at once.
        poll_s: How often the engine is asked about a job.
        patience_s: How long it may not answer before a job on it counts as lost.
        environment: Variables of every rank, such as ``NCCL_SOCKET_IFNAME``.
    """

    queues: tuple[str, ...] = ()
    max_parallel_trials: Count = 1
    poll_s: Positive = 2.0
    patience_s: Positive = 600.0
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRegistration:
    """An engine, and what its operator said of it."""

    name: str
    kind: str
    settings: EngineSettings
    own: Any
    make: Kind

    def engine(self) -> Engine:
        """The engine itself."""
        return self.make.make(self.name, self.own)

    def placed(self, cluster: Cluster) -> Cluster:
        """The cluster with the queue that its jobs wait in: its own, or else the engine's first."""
        queues = self.settings.queues
        return replace(cluster, queue=cluster.queue or (queues[0] if queues else ""))

    def refuses(self, cluster: Cluster) -> str | None:
        """Why a cluster cannot name this engine as it does, as a sentence."""
        if not cluster.queue or cluster.queue in self.settings.queues:
            return None
        known = ", ".join(self.settings.queues) or "none"
        return f"the engine {self.name} has no queue {cluster.queue} that clusters may name (there are: {known})"


def read_engines(path: Path, kinds: Mapping[str, Kind] = KINDS) -> dict[str, EngineRegistration]:
    """Every engine of a file, by name, in the file's order; each is a table of its own.

    Raises:
        InvalidInput: With the file, the engine and the key, and the nearest that is legal.
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
            rule = f"must be letters, digits, dots or hyphens, and not {LOCAL} or {SIMULATED}, which are there anyway"
            raise InvalidInput("name", name, rule)
        if not isinstance(table, dict):
            raise InvalidInput(name, table, "must be a table with a kind", f"[{name}]")
        said = dict(table)
        word = said.pop("kind", None)
        if word not in kinds:
            near = get_close_matches(str(word), kinds, 1, cutoff=0.0)
            raise InvalidInput("kind", word, f"must be one of {', '.join(kinds)}", near[0] if near else None)
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
