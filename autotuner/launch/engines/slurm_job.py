"""A Slurm job's batch script and its shared folder, and the operator's settings for Slurm."""

from __future__ import annotations

import json
import math
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from autotuner.core.cluster import Cluster
from autotuner.core.codec import dumps
from autotuner.core.errors import InvalidInput
from autotuner.core.node_line import PREFIX, NodeEnd
from autotuner.core.trial_spec import NodeTask
from autotuner.core.value import CountFromZero, Positive, value
from autotuner.host.machine_facts import IMAGE
from autotuner.launch.engines.engine import EngineUnavailable, JobOrder
from autotuner.launch.lines import LineReader

# An operator's settings of a Slurm cluster, beside those of every engine.

_PATTERN_LETTERS = "%\\"
"""Characters that Slurm interprets in the path of an output file."""


@value
class SlurmSettings:
    """The settings with which an operator runs jobs on Slurm."""

    shared: str
    """Absolute path of a folder that the service and all nodes see; it holds no ``%`` and no backslash."""
    python: str = "python3"
    """Python interpreter on the nodes (in the container, if there is one); it needs torch and this package."""
    account: str = ""
    """Account that pays for the jobs; empty: Slurm's default."""
    qos: str = ""
    """Quality of service of the jobs; empty: Slurm's default."""
    constraint: str = ""
    """Features that nodes must have, such as ``h100&ib``."""
    gres: str = ""
    """Slurm's name of an accelerator, such as ``gpu`` or ``gpu:h100``; each job requests as many per node as its
    cluster has. Empty: nothing is requested."""
    cpus_per_accelerator: CountFromZero = 0
    """Cores for each rank; 0: Slurm decides, or one core if the accelerators are CPU cores."""
    container_image: str = ""
    """Image in which pyxis and enroot run the nodes of the job; empty: no container."""
    container_mounts: tuple[str, ...] = ()
    """Mounts of the container, as pyxis writes them; ``shared`` is always mounted."""
    sbatch_lines: tuple[str, ...] = ()
    """Extra sbatch options of each job, without ``#SBATCH``: ``--exclusive``, ``--mem=0``."""
    srun_arguments: tuple[str, ...] = ()
    """Extra options of the srun command that starts one process on each node."""
    setup: tuple[str, ...] = ()
    """Lines of bash that run first on a job's first node, such as ``module load cuda``. All ranks get the variables
    that these lines export."""
    slurm_conf: str = ""
    """Path of Slurm's configuration (``SLURM_CONF``); empty: Slurm's default."""
    command_timeout_s: Positive = 30.0
    """Seconds after which a Slurm command without an answer is ended."""
    cancel_s: Positive = 60.0
    """Maximum time that a cancelled job may take to end; Slurm itself waits ``KillWait``, 30 seconds by default."""

    def __post_init__(self) -> None:
        if not Path(self.shared).is_absolute():
            raise InvalidInput("shared", self.shared, "must be an absolute path", Path(self.shared).absolute())
        if any(letter in self.shared for letter in _PATTERN_LETTERS):
            raise InvalidInput(
                "shared", self.shared, "must not contain % or a backslash, which Slurm reads as patterns"
            )
        for index, line in enumerate(self.sbatch_lines):
            _require_option(f"sbatch_lines.{index}", line)
        for index, argument in enumerate(self.srun_arguments):
            _require_option(f"srun_arguments.{index}", argument)
        if self.container_mounts and not self.container_image:
            rule = "must be empty if no container_image is set, because only a container has mounts"
            raise InvalidInput("container_mounts", self.container_mounts, rule)


def _require_option(field: str, text: str) -> None:
    """Raise an error unless ``text`` is a single option on one line.

    Raises:
        InvalidInput: The text does not begin with ``-`` or has more than one line.
    """
    if not text.startswith("-") or "\n" in text:
        nearest = f"--{text.removeprefix('#SBATCH').strip().lstrip('-').splitlines()[0]}" if text.strip() else None
        raise InvalidInput(field, text, "must be one option, and must begin with -", nearest)


# The batch script of a job and the options of its sbatch.
#
# No shell reads what a request says: the script is static text, with the operator's settings (quoted, except
# for lines of bash); the task lies in a file beside it.

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

_ON_EACH_NODE = 'exec "$0" -m autotuner.trials.process.node --node-rank "$SLURM_PROCID" "$@"'
"""Shell command on each node. ``$0`` is the interpreter; Slurm sets the node's number only in processes that it
started."""


def sbatch_options(settings: SlurmSettings, order: JobOrder, folder: Path) -> list[str]:
    """Return the sbatch options for an order: size, time limit, partition, account and files of the job.

    The script contains the operator's own options. If an option occurs in both places, the returned one wins.
    """
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
    """Return the batch script, which runs on the job's first node and starts one process on each node."""
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
    """Return the srun command: one process per node, each with an output file of its own.

    When one node ends, the other nodes keep running for a while so that they can report.
    """
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


# The folder of a job, which the service and its nodes share.

_TAIL_BYTES = 1 << 16
"""Number of bytes at the end of the output in which a node's last line is searched. That line is short, because it only
lists the ranks that died."""

_SHOWN_BYTES = 600
"""Number of bytes shown of the standard error of the batch script or of a node."""


class JobFolder:
    """The folder with the files of one job: its script and task, its number in Slurm, and the output of its nodes.

    Args:
        shared: Folder of all jobs.
        name: Name of the job.
    """

    def __init__(self, shared: Path, name: str) -> None:
        self.path = shared / name

    @property
    def script(self) -> Path:
        """Return the path of the script that is given to sbatch."""
        return self.path / "job.sh"

    @property
    def exists(self) -> bool:
        """Return True if the folder exists: a job of this name was prepared and has not been deleted."""
        with self._work():
            return self.path.is_dir()

    def create(self, task: NodeTask, script: str) -> None:
        """Write the files that the nodes will read. A second call with the same arguments changes nothing."""
        with self._work():
            self.path.mkdir(parents=True, exist_ok=True)
            (self.path / "task.json").write_text(dumps(task))
            self.script.write_text(script)

    def number(self) -> int | None:
        """Return the Slurm number of the job of this name that started; if none has started, of the one submitted last.

        It is None if no job was submitted.
        """
        return self._number("claim") or self._number("submitted")

    def submitted_as(self, number: int) -> None:
        """Store the number that Slurm gave to the job, so that later processes find the job by its folder."""
        with self._work():
            new = self.path / "submitted.new"
            new.write_text(str(number))
            new.replace(self.path / "submitted")

    def cancelled(self) -> None:
        """Store that this service asked Slurm to end the job, so that the end of its nodes is not taken for a loss."""
        with self._work():
            if self.path.is_dir():
                (self.path / "cancelled").touch()

    @property
    def is_cancelled(self) -> bool:
        """Return True if this service asked Slurm to end the job."""
        with self._work():
            return (self.path / "cancelled").exists()

    @property
    def was_restarted(self) -> bool:
        """Return True if Slurm started the job a second time. The batch script ends at once in a second start."""
        with self._work():
            return (self.path / "restarted").exists()

    def read(self, node_rank: int, offset: int) -> bytes:
        """Return the node's output after the first ``offset`` bytes.

        Each call opens the file again, because only then NFS asks its server for new content.
        """
        with self._work():
            path = self._output(node_rank)
            if not path.exists():
                return b""
            with path.open("rb") as file:
                file.seek(offset)
                return file.read()

    def node_ends(self) -> list[NodeEnd | None]:
        """Return how each node ended, with None for a node that still runs; an empty list if the job is unknown."""
        with self._work():
            try:
                num_nodes = int(json.loads((self.path / "task.json").read_text())["num_nodes"])
            except (FileNotFoundError, ValueError, KeyError):
                return []
            return [self._end(node_rank) for node_rank in range(num_nodes)]

    def complaint(self) -> str:
        """Return the end of a node's standard error, or else of the batch script's; empty if both wrote nothing."""
        with self._work():
            for path in (*sorted(self.path.glob("node-*.err")), self.path / "batch.log"):
                if path.exists() and (text := path.read_bytes()[-_SHOWN_BYTES:].decode(errors="replace").strip()):
                    return " ".join(text.split())
        return ""

    def remove(self) -> None:
        """Delete the folder with all its files. If it does not exist, nothing happens."""
        shutil.rmtree(self.path, ignore_errors=True)

    def _output(self, node_rank: int) -> Path:
        return self.path / f"node-{node_rank}.out"

    def _end(self, node_rank: int) -> NodeEnd | None:
        path = self._output(node_rank)
        if not path.exists():
            return None
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            lines = LineReader(PREFIX, node_rank).read(file.read())
            return next((line for line in reversed(lines) if isinstance(line, NodeEnd)), None)

    def _number(self, file: str) -> int | None:
        with self._work():
            path = self.path / file
            text = path.read_text().strip() if path.exists() else ""
            return int(text) if text.isdigit() else None

    @contextmanager
    def _work(self) -> Iterator[None]:
        """Turn an error of the shared folder into ``EngineUnavailable`` while the block runs."""
        try:
            yield
        except OSError as error:
            raise EngineUnavailable(f"the shared folder {self.path.parent}: {error}") from error
