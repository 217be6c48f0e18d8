"""torchtitan 0.2's job file: TOML, and flags that override it."""

from __future__ import annotations

import json
from collections.abc import Mapping

from autotuner.core.choices import Recompute
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.model import TransformerSpec
from autotuner.core.rules.collectives import collective_environment
from autotuner.core.trial_spec import ExportFormat
from autotuner.export.common_rules import LAUNCHED
from autotuner.export.target import Export, ExportedFile, Imported, Target
from autotuner.export.torchtitan import said
from autotuner.export.torchtitan.catalog import RELEASE_0_2, flavor_of, shapes
from autotuner.export.torchtitan.entries import Value
from autotuner.export.torchtitan.rules import RULES_0_2, SEARCHED_0_2
from autotuner.export.torchtitan.texts import is_job_file, settings_of
from autotuner.export.torchtitan.understood import imported

_ORDER = ("model", "training", "parallelism", "activation_checkpoint", "compile", "optimizer")
"""Sections in the order in which torchtitan's own files have them; tables of quantization come last."""


def _write(job: Job, layout: Layout) -> Export:
    flavor = flavor_of(job.model, RELEASE_0_2.version)
    settings: dict[str, Value] = {"model.name": "llama3", "model.flavor": job.model.name}
    if flavor is not None:
        settings = {"model.name": flavor.family, "model.flavor": flavor.attending_by(layout.attention_kernel)}
    settings |= said.batch(job, layout)
    settings |= said.entries(RELEASE_0_2, layout)
    settings |= said.stages(job, layout)
    settings |= said.experts(job, layout)
    settings |= said.recompute_0_2(layout)
    settings |= said.precision(RELEASE_0_2, job, layout)
    name = "torchtitan.toml"
    return Export(
        format=ExportFormat.TORCHTITAN,
        version=RELEASE_0_2.version,
        files=(ExportedFile(name=name, text=_toml(settings)),),
        environment=collective_environment(layout),
        defaults=_defaults(job.model, layout, settings, registered=flavor is not None),
        usage=f"CONFIG_FILE={name} ./run_train.sh, or --job.config_file {name}",
    )


def _defaults(
    model: TransformerSpec, layout: Layout, settings: Mapping[str, Value], *, registered: bool
) -> tuple[str, ...]:
    sentences = [*said.left_out(settings)]
    if not registered:
        added = (
            f"torchtitan 0.2.2 has no flavor of this model: add it to the family that it is of, with {shapes(model)}"
        )
        sentences.insert(0, added)
    sentences.append("the flavor says how it attends: scaled_dot_product_attention takes cuDNN's kernel, else flash")
    if layout.recompute == Recompute.FULL and layout.recompute_every > 1:
        every = layout.recompute_every
        sentences.append(
            f"of a rank's layers, number {every} and its multiples recompute; those of a layout are 1, {every + 1} ..."
        )
    return tuple(sentences)


# ---------------------------------------------------------------- TOML
def _toml(settings: Mapping[str, Value]) -> str:
    tables: dict[str, list[str]] = {name: [] for name in _ORDER}
    for setting, value in settings.items():
        table, _, key = setting.rpartition(".")
        tables.setdefault(table, []).append(f"{key} = {_literal(value)}")
    return "\n".join(f"[{table}]\n" + "\n".join(lines) + "\n" for table, lines in tables.items() if lines)


def _literal(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(_literal, value))}]"
    return _text(value) if isinstance(value, str) else str(value)


def _text(value: str) -> str:
    """A basic string: JSON's escapes are TOML's, but for DEL and for halves of a pair, which no TOML has."""
    plain = value.encode("utf-8", "replace").decode()
    return json.dumps(plain, ensure_ascii=False).replace("\x7f", "\\u007f")


def _read(text: str, num_ranks: int | None) -> Imported:
    return imported(RELEASE_0_2, settings_of(text), num_ranks)


TORCHTITAN = Target(
    format=ExportFormat.TORCHTITAN,
    version=RELEASE_0_2.version,
    rules=RULES_0_2,
    elsewhere=LAUNCHED | {"attention_kernel"},
    write=_write,
    searched=SEARCHED_0_2,
    read=_read,
    recognises=is_job_file,
)
