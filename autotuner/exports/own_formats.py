"""Our own formats: arguments for a user's own training loop, and scripts that start our trial of a layout.

``--tensor-parallel-degree 2 --recompute full --sequence-parallel``: the arguments are the fields of a layout with
dashes. A switch is written as ``argparse.BooleanOptionalAction`` reads it. A training loop reads the fields that it
knows; the others keep their defaults.

A script runs a trial under torchrun, or as a Slurm job. The script contains the trial's spec as JSON, in a
here-document whose quoted delimiter keeps the shell from expanding it. Everything else in the script comes from numbers
and from the words of a layout.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from typing import Any

from autotuner.core import codec
from autotuner.core.choices import ExportFormat
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.option import Kind
from autotuner.core.rules.collectives import collective_environment
from autotuner.core.rules.trial_job import TRIAL_RULES
from autotuner.core.trial_spec import TrialSettings, TrialSpec
from autotuner.exports.shared.command import Flags, launched
from autotuner.exports.shared.keys import Reading
from autotuner.exports.shared.target import Export, ExportedFile, Imported, Note, NoteKind, Notes, Target

_VERSION = str(codec.SCHEMA_VERSION)
"""Version of the format. Fields of a layout and of a trial's spec have the names of this codec version."""


def _write(job: Job, layout: Layout) -> Export:
    arguments = ["--seq-len", str(job.workload.seq_len), "--global-batch-size", str(job.workload.global_batch_size)]
    for name, option in OPTIONS.items():
        value = getattr(layout, name)
        if option.always_shown or value != option.default:  # the default of the user's script may differ from ours
            flag = name.replace("_", "-")
            is_switch = option.kind == Kind.SWITCH
            arguments += (
                [f"--{'' if value else 'no-'}{flag}"] if is_switch else [f"--{flag}", str(option.to_plain(value))]
            )
    return Export(
        format=ExportFormat.ARGUMENTS,
        layout=layout,
        version=_VERSION,
        arguments=tuple(arguments),
        environment=collective_environment(layout),
        left_to_trainer=("options that the words leave out keep the defaults in docs/reference/layouts.md",),
        usage="append them to the command that starts your script under torchrun",
    )


def _read(text: str, num_ranks: int | None) -> Imported:
    """Return the layout that the arguments describe. Fields without an argument have our own defaults."""
    command = launched(text)
    given = command.arguments
    reading = Reading(settings=given)
    fields = {name: _value(given, name) for name in OPTIONS if name in given or f"no_{name}" in given}
    if not fields:
        raise InvalidInput(
            "config",
            text[:60],
            "must have at least one argument with the name of a field of a layout, such as --tensor-parallel-degree 2",
        )
    ranks = num_ranks or command.num_ranks
    layout = _on_ranks(Layout(**fields), fields, ranks, reading)
    batch = {name: reading.integer(name, 0, least=1) or None for name in ("seq_len", "global_batch_size")}
    for name in given.values:
        if name.removeprefix("no_") not in OPTIONS and name not in batch:
            near = get_close_matches(name, OPTIONS, 1, 0.85)
            detail = f"is not a field of a layout; did you mean {near[0]}?" if near else "is not a field of a layout"
            reading.ignored(f"--{name.replace('_', '-')}", detail)
    return Imported(
        format=ExportFormat.ARGUMENTS,
        version=_VERSION,
        layout=layout,
        num_ranks=ranks or layout.world_size,
        seq_len=batch["seq_len"],
        global_batch_size=batch["global_batch_size"],
        notes=(*reading, *command.notes),
    )


def _value(given: Flags, name: str) -> Any:
    option = OPTIONS[name]
    if option.kind == Kind.SWITCH:
        negated = given.switch(f"no_{name}")
        return given.switch(name) if negated is None else not negated
    if option.kind == Kind.CHOICE:
        return option.from_plain(given.text(name) or "")
    number = given.integer(name)
    if number is None:
        raise InvalidInput(name, "", "must be a whole number")
    return number


def _on_ranks(layout: Layout, fields: Mapping[str, Any], ranks: int | None, notes: Notes) -> Layout:
    """Return the layout on the given number of ranks.

    Ranks that no degree uses are replicas, as in a training loop that names no degree for them.
    """
    if ranks is None or layout.world_size == ranks:
        return layout
    left, rest = divmod(ranks, layout.world_size)
    if rest or left == 0 or fields.keys() & {"data_parallel_replicate_degree", "data_parallel_shard_degree"}:
        raise InvalidInput(
            "num_ranks",
            ranks,
            f"must be {layout.world_size}, the product of the parallel degrees in the configuration",
            layout.world_size,
        )
    notes.assumed("--data-parallel-replicate-degree", f"{left} replicas use the ranks that no degree names")
    return replace(layout, data_parallel_replicate_degree=left)


_OWN = re.compile(
    r"(?:^|\s)--((data-parallel-(replicate|shard)|(tensor|context|expert|pipeline)-parallel)-degree|shard-level|"
    r"pipeline-schedule|attention-kernel|recompute-every|gradient-bucket-bytes)\b"
)
"""Pattern of arguments that only this format has, and no trainer."""

ARGUMENTS = Target(
    format=ExportFormat.ARGUMENTS,
    version=_VERSION,
    rules=(),
    decided_elsewhere=frozenset(),
    write=_write,
    read=_read,
    recognises=lambda text: bool(_OWN.search(text.replace("_", "-"))),
)


# ---------------------------------------------------------------- scripts that start our own trial
PORT = 29500
"""Port on which torchrun's ranks connect (``torch.distributed.run``, ``PORT`` of static rendezvous in torch 2.13)."""

_TORCHRUN_SCRIPT = """\
#!/usr/bin/env bash
# Runs one trial of this layout and appends what it measures to reports.jsonl in a folder of its own:
#   {layout}
# Usage: bash {name} [FOLDER]{per_node}; PYTHON names an interpreter that has parallelism-autotuner and torch.
set -euo pipefail
folder=${{1:-trial}}
mkdir -p -- "$folder"
cat >"$folder/spec.json" <<'SPEC'
{spec}
SPEC
exec "${{PYTHON:-python3}}" -m torch.distributed.run \\
  {rendezvous} \\
  --nproc-per-node {per_node_ranks} \\
  --max-restarts 0 \\
  -m autotuner.trials --spec "$folder/spec.json" --reports "$folder/reports.jsonl"
"""

_SBATCH_SCRIPT = """\
#!/usr/bin/env bash
# Runs one trial of this layout and appends what it measures to reports.jsonl in a folder of its own:
#   {layout}
# Usage: sbatch {name}, from a folder that all nodes see; PYTHON names an interpreter that has parallelism-autotuner
# and torch. Partition, account and time are yours to add. A node has one task, with all cores, which starts its ranks.
{resources}
set -euo pipefail
folder="${{SLURM_SUBMIT_DIR:-$PWD}}/autotuner-trial-$SLURM_JOB_ID"
mkdir -p -- "$folder"
cat >"$folder/spec.json" <<'SPEC'
{spec}
SPEC
head_node=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)
exec srun --cpu-bind=none --cpus-per-task="$SLURM_CPUS_ON_NODE" "${{PYTHON:-python3}}" -m torch.distributed.run \\
  --nnodes {num_nodes} --rdzv-backend c10d --rdzv-id "$SLURM_JOB_ID" --rdzv-endpoint "$head_node:{port}" \\
  --nproc-per-node {per_node_ranks} \\
  --max-restarts 0 \\
  -m autotuner.trials --spec "$folder/spec.json" --reports "$folder/reports.jsonl"
"""


def trial_spec(job: Job, layout: Layout) -> TrialSpec:
    """Return the specification of a trial that runs the layout, with the default settings of a sweep's trials."""
    accelerator = job.cluster.accelerator
    on_cpu = accelerator.kind == "cpu"
    is_known = accelerator.peak_is_measured or not on_cpu
    return TrialSpec(
        trial_id="exported",
        model=job.model,
        workload=job.workload,
        layout=layout,
        device="cpu" if on_cpu else "cuda",
        settings=TrialSettings.default_for(layout),
        reference_flop_per_s=accelerator.reference_flop_per_s if is_known else None,
        precision_flop_per_s=accelerator.peak_flop_per_s(layout.precision) if is_known else None,
        memory_bytes=None if on_cpu else accelerator.memory_bytes,
    )


def _write_torchrun(job: Job, layout: Layout) -> Export:
    name = "trial.sh"
    one_node = job.cluster.num_nodes == 1
    text = _TORCHRUN_SCRIPT.format(
        **_filled(job, layout, name),
        per_node="" if one_node else " on each node, with HEAD_NODE naming the first, from a folder that all see",
        rendezvous="--standalone" if one_node else _rendezvous(job.cluster.num_nodes),
    )
    return _export(ExportFormat.TORCHRUN, layout, ExportedFile(name=name, text=text), f"bash {name}")


def _rendezvous(num_nodes: int) -> str:
    endpoint = f'--rdzv-endpoint "${{HEAD_NODE:?names the first node}}:{PORT}"'
    return f"--nnodes {num_nodes} --rdzv-backend c10d --rdzv-id autotuner-trial {endpoint}"


def _write_sbatch(job: Job, layout: Layout) -> Export:
    name = "trial.sbatch"
    resources, num_nodes = slurm_resources("autotuner-trial", job, layout), job.cluster.num_nodes
    text = _SBATCH_SCRIPT.format(**_filled(job, layout, name), resources=resources, num_nodes=num_nodes, port=PORT)
    return _export(ExportFormat.SBATCH, layout, ExportedFile(name=name, text=text), f"sbatch {name}")


def _filled(job: Job, layout: Layout, name: str) -> dict[str, object]:
    spec = {"schema_version": codec.SCHEMA_VERSION, **codec.to_plain(trial_spec(job, layout))}
    return {
        "name": name,
        "layout": str(layout),
        "spec": json.dumps(spec, indent=2),
        "per_node_ranks": ranks_per_node(job, layout),
    }


def slurm_resources(name: str, job: Job, layout: Layout) -> str:
    """Return the lines of a batch script that ask Slurm for the cluster's nodes, with one task on each node."""
    devices = "cpus-per-task" if job.cluster.accelerator.kind == "cpu" else "gpus-per-node"
    options = (
        f"job-name={name}",
        f"nodes={job.cluster.num_nodes}",
        "ntasks-per-node=1",
        f"{devices}={ranks_per_node(job, layout)}",
        "exclusive",
        f"output={name}-%j.log",
    )
    return "\n".join(f"#SBATCH --{option}" for option in options)


def ranks_per_node(job: Job, layout: Layout) -> int:
    """Return the number of ranks that a script starts on each node of the cluster."""
    return -(-layout.world_size // job.cluster.num_nodes)


def _export(format_: ExportFormat, layout: Layout, file: ExportedFile, usage: str) -> Export:
    left = (
        "steps, warm-up, learning rate and seed are those of a trial of a sweep; change them in the JSON of the script"
    )
    return Export(format=format_, layout=layout, version=_VERSION, files=(file,), left_to_trainer=(left,), usage=usage)


def _read_script(format_: ExportFormat, text: str, num_ranks: int | None) -> Imported:
    """Return the layout that a script was made from."""
    _, begun, rest = text.replace("\r\n", "\n").partition("<<'SPEC'\n")
    document, ended, _ = rest.partition("\nSPEC\n")
    if not begun or not ended:
        raise InvalidInput(
            "config",
            text[:60],
            "must be a script that `autotuner export` wrote, with the JSON of a trial between the lines <<'SPEC' "
            "and SPEC",
        )
    spec = codec.loads(TrialSpec, document)
    if num_ranks not in (None, spec.layout.world_size):
        rule = f"must be {spec.layout.world_size}, the ranks of the layout in the script"
        raise InvalidInput("num_ranks", num_ranks, rule, spec.layout.world_size)
    settings = Note(kind=NoteKind.IGNORED, setting="settings", detail="the length of a trial is not part of a layout")
    return Imported(
        format=format_,
        version=_VERSION,
        layout=spec.layout,
        num_ranks=spec.layout.world_size,
        model=spec.model,
        model_name=spec.model.name,
        seq_len=spec.workload.seq_len,
        global_batch_size=spec.workload.global_batch_size,
        notes=(settings,),
    )


def _target(format_: ExportFormat, write: Callable[[Job, Layout], Export]) -> Target:
    is_batch = format_ == ExportFormat.SBATCH
    return Target(
        format=format_,
        version=_VERSION,
        rules=TRIAL_RULES,
        decided_elsewhere=frozenset(),
        write=write,
        read=partial(_read_script, format_),
        recognises=lambda text: all(part in text for part in _PARTS) and ("#SBATCH" in text) == is_batch,
    )


_PARTS = ("-m autotuner.trials --spec", "<<'SPEC'")
"""Texts that every such script contains, by which it is recognised."""

TORCHRUN = _target(ExportFormat.TORCHRUN, _write_torchrun)
SBATCH = _target(ExportFormat.SBATCH, _write_sbatch)
