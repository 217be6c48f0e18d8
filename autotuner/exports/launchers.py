"""Scripts that start the user's trainer with an exported layout: under torchrun, as a Slurm job, or on Kubernetes.

``launch.sh`` is the one script that starts a node's ranks. ``launch.sbatch`` runs it on each node of a Slurm job, and
``launch.yaml`` in each pod of a Kubernetes job. The script adds the arguments that it gets to those of the layout, so
data, schedule and checkpoints need no change of it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import yaml

from autotuner.core.choices import ExportFormat, ExportLauncher
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job
from autotuner.exports.deepspeed import FILE_NAME
from autotuner.exports.own_formats import PORT, ranks_per_node, slurm_resources
from autotuner.exports.shared.target import Export, ExportedFile, argument_lines
from autotuner.exports.torchtitan import write as torchtitan

_GPU_RESOURCE = {"cuda": "nvidia.com/gpu", "rocm": "amd.com/gpu", "cpu": "cpu"}
_FOLDER = "/launch"
"""Folder of a pod that has the script and the files of the export."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """The start of a trainer's command line, before the arguments of the layout."""

    program: str
    """The script or module with which torchrun starts each rank, as words of a shell."""
    arguments: tuple[str, ...] = ()
    """Arguments that name the exported files."""


_SCRIPT = '"${TRAIN_SCRIPT:-train.py}"'
_RECIPE = '"${TRAIN_SCRIPT:?must name the script that runs your recipe with overrides}"'
_TORCHTITAN = '-m "${TRAIN_MODULE:-torchtitan.train}"'
_ENTRIES: Mapping[ExportFormat, _Entry] = {
    ExportFormat.MEGATRON_LM: _Entry(program='"${TRAIN_SCRIPT:-pretrain_gpt.py}"'),
    ExportFormat.MEGATRON_BRIDGE: _Entry(program=_RECIPE),
    ExportFormat.NEMO: _Entry(program=_RECIPE),
    ExportFormat.TORCHTITAN: _Entry(program=_TORCHTITAN, arguments=("--job.config_file", torchtitan.FILE_NAME)),
    ExportFormat.TORCHTITAN_CONFIG: _Entry(
        program=_TORCHTITAN, arguments=("--module", torchtitan.MODULE, "--config", torchtitan.FUNCTION)
    ),
    ExportFormat.DEEPSPEED: _Entry(program=_SCRIPT, arguments=("--deepspeed", "--deepspeed_config", FILE_NAME)),
    ExportFormat.ACCELERATE: _Entry(program=_SCRIPT),
    ExportFormat.TRANSFORMERS: _Entry(program=_SCRIPT),
    ExportFormat.ARGUMENTS: _Entry(program=_SCRIPT),
}


def with_launcher(export: Export, job: Job, launcher: ExportLauncher) -> Export:
    """Return the export with scripts that start the trainer. The scripts contain its arguments and its variables.

    Args:
        export: The export of a layout for a trainer.
        job: The job of the layout, whose cluster has the nodes.
        launcher: What starts the ranks.

    Raises:
        InvalidInput: The format starts the product's own trial, so that there is no trainer to start.
    """
    if not export.format.is_of_a_trainer:
        rule = f"starts no trainer, because the format {export.format} starts a trial of this product; leave it out"
        raise InvalidInput("launcher", launcher.value, rule)
    script = ExportedFile(name="launch.sh", text=_script(export, job))
    files = (*export.files, script)
    match launcher:
        case ExportLauncher.TORCHRUN:
            one_node = job.cluster.num_nodes == 1
            where = "" if one_node else " on each node, with HEAD_NODE set to the name of the first node"
            usage = f"bash launch.sh ARGUMENTS OF YOUR SCRIPT{where}"
        case ExportLauncher.SBATCH:
            files = (*files, ExportedFile(name="launch.sbatch", text=_sbatch(export, job)))
            usage = "sbatch launch.sbatch ARGUMENTS OF YOUR SCRIPT, in a folder that all nodes see"
        case ExportLauncher.KUBERNETES:
            files = (ExportedFile(name="launch.yaml", text=_kubernetes(export, job, files)),)
            usage = "set the image in launch.yaml, then: kubectl apply -f launch.yaml"
    return replace(export, arguments=(), environment={}, files=files, usage=usage)


def _script(export: Export, job: Job) -> str:
    """Return the shell script that starts the ranks of one node."""
    own = {file.name for file in export.files}
    entry = _ENTRIES[export.format]
    lines = [*_started(export, job), entry.program]
    lines += argument_lines((*entry.arguments, *export.arguments), lambda word: _word(word, own))
    variables = [f"export {name}={shlex.quote(value)}" for name, value in export.environment.items()]
    if any(name.endswith(".py") for name in own):
        variables.append('export PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}"')
    head = [
        "#!/usr/bin/env bash",
        f"# Starts the ranks of one node for training with this layout: {export.label}",
        f"# Written for {export.format} {export.version}. The arguments of this script follow those of the layout.",
        "set -euo pipefail",
        *(['here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)'] if own else []),
        *variables,
    ]
    return "\n".join(head) + "\nexec " + " \\\n  ".join((*lines, '"$@"')) + "\n"


def _word(word: str, own: set[str]) -> str:
    return f'"$here"/{shlex.quote(word)}' if word in own else shlex.quote(word)


def _started(export: Export, job: Job) -> Iterator[str]:
    """Yield the lines that start the ranks of this node: torchrun, or the launcher of Accelerate."""
    nodes, ranks = job.cluster.num_nodes, ranks_per_node(job, export.layout)
    head = '"${HEAD_NODE:?must name the first node}'
    if export.format == ExportFormat.ACCELERATE:
        yield 'accelerate launch --config_file "$here"/accelerate.yaml'
        if nodes > 1:
            yield f'--main_process_ip {head}" --main_process_port {PORT}'
            number = "${NODE_RANK:-${SLURM_NODEID:-${JOB_COMPLETION_INDEX:?must be the number of this node}}}"
            yield f'--machine_rank "{number}"'
        return
    yield "torchrun"
    if nodes == 1:
        yield f"--standalone --nproc-per-node {ranks}"
    else:
        yield f"--nnodes {nodes} --nproc-per-node {ranks}"
        yield f'--rdzv-backend c10d --rdzv-id "${{SLURM_JOB_ID:-train}}" --rdzv-endpoint {head}:{PORT}"'


def _sbatch(export: Export, job: Job) -> str:
    return f"""\
#!/usr/bin/env bash
# Trains with this layout as a Slurm job: {export.label}
# Partition, account and time are yours to add. Each node has one task, which starts the node's ranks with launch.sh.
{slurm_resources("train", job, export.layout)}
set -euo pipefail
HEAD_NODE=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)
export HEAD_NODE
exec srun --cpu-bind=none --cpus-per-task="$SLURM_CPUS_ON_NODE" bash "$SLURM_SUBMIT_DIR/launch.sh" "$@"
"""


def _kubernetes(export: Export, job: Job, files: tuple[ExportedFile, ...]) -> str:
    """Return a ConfigMap with the files, a Service that gives pods names, and a Job with one pod for each node."""
    name, nodes = "train", job.cluster.num_nodes
    resource = _GPU_RESOURCE[job.cluster.accelerator.kind]
    container = {
        "name": name,
        "image": "IMAGE",
        "command": ["bash", f"{_FOLDER}/launch.sh"],
        "args": [],
        "env": [{"name": "HEAD_NODE", "value": f"{name}-0.{name}"}],
        "resources": {"limits": {resource: str(ranks_per_node(job, export.layout))}},
        "volumeMounts": [{"name": "launch", "mountPath": _FOLDER}, {"name": "shm", "mountPath": "/dev/shm"}],
    }
    pod = {
        "subdomain": name,
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [
            {"name": "launch", "configMap": {"name": name}},
            {"name": "shm", "emptyDir": {"medium": "Memory"}},
        ],
    }
    labels = {"app": name}
    objects = (
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name},
            "data": {file.name: file.text for file in files},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name},
            "spec": {"clusterIP": "None", "selector": labels, "publishNotReadyAddresses": True},
        },
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name},
            "spec": {
                "completionMode": "Indexed",
                "completions": nodes,
                "parallelism": nodes,
                "backoffLimit": 0,
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        },
    )
    head = (
        f"# Trains with this layout: {export.label}\n"
        "# Write your image with the trainer in the place of IMAGE, and the arguments of your script into args.\n"
    )
    return head + yaml.dump_all(objects, Dumper=_Blocks, sort_keys=False, width=120)


class _Blocks(yaml.SafeDumper):
    """Writes texts of several lines as blocks, so that people can read the script."""


def _represent(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Blocks.add_representer(str, _represent)
