"""The page of the keys in the files by which an operator registers engines and trainers."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, get_type_hints

from autotuner.launch.engines.kubernetes_objects import KubernetesSettings
from autotuner.launch.engines.processes import ProcessSettings
from autotuner.launch.engines.ray_api import RaySettings
from autotuner.launch.engines.registration import EngineSettings
from autotuner.launch.engines.slurm_job import SlurmSettings
from autotuner.launch.trainers.registration import TrainerTable
from documentation.reference.descriptions import default_text, meanings, value_words
from documentation.reference.markdown import head, table

_TABLES: dict[str, type[Any]] = {
    "Every engine": EngineSettings,
    "Engines of the kind `processes`": ProcessSettings,
    "Engines of the kind `slurm`": SlurmSettings,
    "Engines of the kind `kubernetes`": KubernetesSettings,
    "Engines of the kind `ray`": RaySettings,
    "Trainers": TrainerTable,
}

_INTRODUCTION = """\
`AUTOTUNER_ENGINES` names a TOML file with a table for each engine, `AUTOTUNER_TRAINERS` one with a table for each
trainer. Every engine has the key `kind` and the keys of its kind beside those of every engine.
"""

_AUTOMATIC = {"python": "the service's own"}
"""Words for defaults that depend on the machine that generates the page."""


def registrations_page() -> str:
    """Return the Markdown page of the keys in registration files: one table for each kind of registration."""
    summary = "The keys of the TOML files in which an operator registers engines and trainers."
    parts = [head("Registration files", summary), _INTRODUCTION]
    for title, cls in _TABLES.items():
        hints, texts = get_type_hints(cls), meanings(cls)
        rows = [
            (
                f"`{one.name}`",
                value_words(hints[one.name]).replace("object", "table"),
                _default(cls, one),
                texts.get(one.name, ""),
            )
            for one in fields(cls)
        ]
        parts.append(f"## {title}\n\n{table(('key', 'value', 'default', 'meaning'), rows)}")
    return "\n".join(parts)


def _default(cls: type[Any], one: Any) -> str:
    return _AUTOMATIC["python"] if cls is ProcessSettings and one.name == "python" else default_text(one)
