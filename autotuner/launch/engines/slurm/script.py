"""The batch script of a job and the options of its sbatch.

No shell reads what a request says: the script is static text, with what the operator's settings say, quoted or, where
they are lines of bash, as they are; the task lies in a file beside it.
"""

from __future__ import annotations

import math
import shlex
from pathlib import Path

from autotuner.core.cluster import Cluster
from autotuner.host.machine import IMAGE
from autotuner.launch.engines.engine import JobOrder
from autotuner.launch.engines.slurm.settings import SlurmSettings

_ON_THE_FIRST_NODE = r"""
# Two jobs of this name are submitted where the answer of the first sbatch was lost: whichever starts first claims the
# folder, the other leaves at once. So does a job that Slurm starts again because its controller forgot that it ran.
if ! (set -o noclobber; echo "$SLURM_JOB_ID" > "$folder/claim") 2>/dev/null; then
  [ "$(cat "$folder/claim")" != "$SLURM_JOB_ID" ] || touch "$folder/restarted"
  exit 0
fi
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
address=$(scontrol show node "$first" --oneliner | sed -n 's/.* NodeAddr=\([^ ]*\) .*/\1/p')
address=${address:-$first}
# Jobs whose first nodes are the same machine begin at ports of their own, below those that the kernel hands out.
port=$((20000 + SLURM_JOB_ID % 2500 * 4))
while (exec 3<>"/dev/tcp/$address/$port") 2>/dev/null; do port=$((port + 1)); done
"""

_ON_EACH_NODE = 'exec "$0" -m trials.process.node --node-rank "$SLURM_PROCID" "$@"'
"""Run by sh with the interpreter as its name; only a process that Slurm has started knows its own number."""


def sbatch_options(settings: SlurmSettings, order: JobOrder, folder: Path) -> list[str]:
    """Options that go before those in the script: how large, how long, where; the operator's words stand beside."""
    cluster = order.cluster
    options = {
        "job-name": order.name,
        "nodes": str(cluster.num_nodes),
        "ntasks-per-node": "1",
        "cpus-per-task": _cpus_per_node(settings, cluster),
        "time": str(math.ceil(order.time_limit_s / 60.0)),  # minutes
        "partition": cluster.queue,
        "account": settings.account,
        "qos": settings.qos,
        "constraint": settings.constraint,
        "gres": _gres(settings, cluster),
        "chdir": str(folder),
        "output": str(folder / "batch.log"),
    }
    return ["--parsable", "--no-requeue", *(f"--{name}={value}" for name, value in options.items() if value)]


def batch_script(settings: SlurmSettings, order: JobOrder, folder: Path) -> str:
    """What runs on the job's first node: it starts one process on each."""
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH {line}" for line in settings.sbatch_lines),
        f"folder={shlex.quote(str(folder))}",
        *([f"export {IMAGE}={shlex.quote(settings.container_image)}"] if settings.container_image else []),
        *settings.setup,
        _ON_THE_FIRST_NODE,
        f"exec {_step(settings, order.cluster, folder)}",
    ]
    return "\n".join(lines) + "\n"


def _step(settings: SlurmSettings, cluster: Cluster, folder: Path) -> str:
    """One process per node, whose output is a file of its own; a node's end leaves the others time for their words."""
    cpus = _cpus_per_node(settings, cluster)
    fixed = [
        *("srun", f"--nodes={cluster.num_nodes}", f"--ntasks={cluster.num_nodes}", "--ntasks-per-node=1"),
        *([f"--cpus-per-task={cpus}"] if cpus else []),
        *("--kill-on-bad-exit=0", "--wait=60", "--input=none", "--open-mode=append"),
        *(f"--output={folder}/node-%t.out", f"--error={folder}/node-%t.err"),
        *_container(settings, folder),
        *settings.srun_arguments,
        *("sh", "-c", _ON_EACH_NODE, settings.python, "--task", f"{folder}/task.json"),
    ]
    return f'{shlex.join(fixed)} --master-address "$address" --master-port "$port"'


def _container(settings: SlurmSettings, folder: Path) -> list[str]:
    if not settings.container_image:
        return []
    mounts = (f"{folder}:{folder}", *settings.container_mounts)
    return [f"--container-image={settings.container_image}", f"--container-mounts={','.join(mounts)}"]


def _cpus_per_node(settings: SlurmSettings, cluster: Cluster) -> str:
    is_cores = cluster.accelerator.kind == "cpu"
    per_accelerator = max(settings.cpus_per_accelerator, 1 if is_cores else 0)
    return str(per_accelerator * cluster.accelerators_per_node) if per_accelerator else ""


def _gres(settings: SlurmSettings, cluster: Cluster) -> str:
    return f"{settings.gres}:{cluster.accelerators_per_node}" if settings.gres else ""
