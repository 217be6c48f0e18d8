"""A real Slurm of two emulated nodes on this machine, in a folder of its own; needs root and Debian's packages."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from autotuner.launch.this_machine import num_usable_cores

NODES = ("n1", "n2")

_PRETENDED_CORES = 16
"""What each node claims to have, so that several jobs of two ranks per node fit at once."""

_WELL = {"idle", "mixed", "allocated", "completing"}
"""States of a node that answers; one that does not has an asterisk."""

_WAIT_S = 180.0
"""For what comes in seconds, unless a step ended while no controller was there: its manager asks again after a minute,
and its node is not idle before."""

_CONF = """\
ClusterName=emulated
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CryptoType=crypto/munge
StateSaveLocation={folder}/slurmctld
SlurmdSpoolDir={folder}/slurmd-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
SlurmdParameters=config_overrides
ReturnToService=2
MinJobAge={min_job_age_s}
MessageTimeout=5
SlurmctldTimeout=30
SlurmdTimeout={slurmd_timeout_s}
KillWait=15
UnkillableStepTimeout=60
MpiDefault=none
NodeName={nodes} NodeHostname={host} NodeAddr=127.0.0.1 Port={node_ports} CPUs={cores} Boards=1 \
SocketsPerBoard=1 CoresPerSocket={cores} ThreadsPerCore=1 RealMemory=8000 State=UNKNOWN
PartitionName=short Nodes=ALL Default=YES MaxTime=INFINITE State=UP
PartitionName=closed Nodes=ALL MaxTime=INFINITE State=DOWN
PartitionName=urgent Nodes=ALL MaxTime=INFINITE PriorityTier=2 State=UP
"""


def require_slurm() -> None:
    """Install Slurm from the distribution's packages where it is missing.

    Raises:
        RuntimeError: It cannot be had here, and why: these tests fail then, they do not pass unseen.
    """
    if os.geteuid() != 0:
        raise RuntimeError("the Slurm of these tests needs root: its daemons start jobs as the user who owns them")
    done = _ran("sh", str(Path(__file__).with_name("install.sh")), timeout_s=300.0)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())


def _found(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


@dataclass(slots=True)
class SlurmCluster:
    """The daemons of one Slurm, each of which can be killed and started again.

    Attributes:
        folder: Holds configuration, state and logs of the daemons.
        shared: Folder that all nodes see.
    """

    folder: Path
    min_job_age_s: int = 300
    slurmd_timeout_s: int = 5

    @property
    def conf(self) -> Path:
        """What ``SLURM_CONF`` names."""
        return self.folder / "slurm.conf"

    @property
    def shared(self) -> Path:
        """A folder that all nodes see."""
        return self.folder / "shared"

    def start(self) -> None:
        """Write the configuration and start munge, the controller and both nodes; returns when both are idle."""
        for name in ("munge", "slurmctld", "shared", *(f"slurmd-{node}" for node in NODES)):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        ports = _free_ports(1 + len(NODES))
        self.conf.write_text(
            _CONF.format(
                host=socket.gethostname().split(".")[0],
                folder=self.folder,
                ports=ports,
                nodes=",".join(NODES),
                node_ports=",".join(map(str, ports[1:])),
                cores=_PRETENDED_CORES,
                min_job_age_s=self.min_job_age_s,
                slurmd_timeout_s=self.slurmd_timeout_s,
            )
        )
        self._start_munge()
        self.start_controller(forget=True)
        for node in NODES:
            self.start_node(node)
        self.wait_for(self._is_idle, "both nodes are idle")

    def _start_munge(self) -> None:
        munge = self.folder / "munge"
        key = munge / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        paths = {"key-file": key, "socket": munge / "socket", "pid-file": munge / "pid", "log-file": munge / "log"}
        options = [f"--{name}={path}" for name, path in (paths | {"seed-file": munge / "seed"}).items()]
        self._daemon("munged", "--force", *options)

    def start_controller(self, *, forget: bool = False) -> None:
        """Start slurmctld, with the state that it left, or without."""
        self._daemon("slurmctld", "-f", str(self.conf), *(("-c",) if forget else ()))
        self.wait_for(lambda: self.run("scontrol", "ping", check=False).returncode == 0, "slurmctld answers")

    def start_node(self, node: str) -> None:
        """Start the slurmd of a node, on cores of its own where the machine has two or more."""
        self._daemon("taskset", "-c", _cores_of(node), _found("slurmd") or "slurmd", "-f", str(self.conf), "-N", node)

    def kill_controller(self) -> None:
        """As if its machine had lost power; jobs go on."""
        _kill(self._pid("slurmctld.pid"))

    def kill_node(self, node: str) -> None:
        """As if the machine had lost power: its slurmd and all that it ever started are gone at once."""
        started = self.processes_of(node)
        _kill(self._pid(f"slurmd-{node}.pid"))
        for process in started:
            _kill(process.pid)

    def revive(self) -> None:
        """Start what was killed; returns when both nodes are there."""
        if not _is_alive(self._pid("slurmctld.pid")):
            self.start_controller()
        for node in NODES:
            if not _is_alive(self._pid(f"slurmd-{node}.pid")):
                self.start_node(node)
        self.wait_for(self._is_well, "both nodes are there")

    def calm(self) -> None:
        """Revive it, and end what an earlier test left running or waiting; returns when both nodes are idle."""
        self.revive()
        self.run("scancel", "--user=root", check=False)
        self.wait_for(lambda: self._is_well() and self._is_idle(), "no job is left and both nodes are idle")

    def _is_well(self) -> bool:
        self.resume()
        return set(self.node_states().values()) <= _WELL

    def _is_idle(self) -> bool:
        is_empty = not self.run("squeue", "--noheader", check=False).stdout
        return is_empty and self.node_states() == dict.fromkeys(NODES, "idle")

    def resume(self) -> None:
        """Have drained nodes take jobs again, as their operator does.

        A controller that lost power has forgotten its last seconds, hands out numbers of jobs again that still run, and
        drains the nodes on which it meets them (``Duplicate jobid``).
        """
        for node, state in self.node_states().items():
            if state.startswith("drain"):
                self.run("scontrol", "update", f"nodename={node}", "state=resume", check=False)

    def processes_of(self, node: str) -> list[psutil.Process]:
        """What jobs run on that node, and Slurm's managers of their steps."""
        spool = str(self.folder / f"slurmd-{node}")
        managers = [process for process in psutil.process_iter() if _manages_a_step(process, spool)]
        return [process for manager in managers for process in (manager, *_below(manager))]

    def node_states(self) -> dict[str, str]:
        """How Slurm sees its nodes, in its words."""
        listed = self.run("sinfo", "--noheader", "--Node", "--partition=short", "--format=%N %T", check=False).stdout
        return dict(line.split() for line in listed.splitlines())

    def jobs(self, state: str = "all") -> list[str]:
        """The numbers of the jobs in that state, as Slurm knows them."""
        return sorted(self.run("squeue", "--noheader", f"--states={state}", "--format=%A").stdout.split(), key=int)

    def names(self) -> list[str]:
        """The names of all jobs that Slurm knows."""
        return self.run("squeue", "--noheader", "--states=all", "--format=%j").stdout.split()

    def reason(self, job: str) -> str:
        """Why a job waits, as squeue prints it."""
        return self.run("squeue", "--noheader", f"--jobs={job}", "--format=%r").stdout.strip()

    def run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """What a command of Slurm prints."""
        done = _ran(*command, SLURM_CONF=str(self.conf))
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
        return done

    def stop(self) -> None:
        """End all jobs and daemons, whatever state they are in."""
        self.run("scancel", "--user=root", check=False)
        deadline = time.monotonic() + 10.0
        while self.run("squeue", "--noheader", check=False).stdout and time.monotonic() < deadline:
            time.sleep(0.2)
        for node in NODES:
            self.kill_node(node)
        self.kill_controller()
        _kill(self._pid("munge/pid"))

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Return when it holds.

        Raises:
            TimeoutError: It never did; with the ends of the daemons' logs.
        """
        deadline = time.monotonic() + _WAIT_S
        while not condition():
            if time.monotonic() > deadline:
                now = f"nodes {self.node_states()}, jobs {self.run('squeue', '--noheader', check=False).stdout}"
                logs = "\n".join(f"{path.name}: {path.read_text()[-2000:]}" for path in self.folder.glob("*.log"))
                raise TimeoutError(f"it never came that {what}; {now}; {logs}")
            time.sleep(0.1)

    def _daemon(self, program: str, *arguments: str) -> None:
        """A daemon returns when it has forked; one that cannot start says why."""
        command = (_found(program) or program, *arguments)
        done = _ran(*command)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} did not start: {done.stderr.strip()}")

    def _pid(self, file: str) -> int | None:
        path = self.folder / file
        return int(path.read_text()) if path.exists() and path.read_text().strip() else None


@contextmanager
def slurm_cluster(folder: Path, **settings: int) -> Iterator[SlurmCluster]:
    """A Slurm that runs while the block does."""
    require_slurm()
    cluster = SlurmCluster(folder, **settings)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def _cores_of(node: str) -> str:
    """A contiguous share of this machine's cores; all of them where there are fewer cores than nodes."""
    usable, position = sorted(os.sched_getaffinity(0)), NODES.index(node)
    share = num_usable_cores() // len(NODES)
    chosen = usable[position * share : (position + 1) * share] if share else usable
    return ",".join(map(str, chosen))


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]


def _ran(*command: str, timeout_s: float = 60.0, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env=os.environ | variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
    )


def _manages_a_step(process: psutil.Process, spool: str) -> bool:
    """Whether it is a slurmstepd of the node with that spool: it listens there."""
    try:
        if process.name() != "slurmstepd":
            return False
        return any(str(opened.laddr).startswith(f"{spool}/") for opened in process.net_connections("unix"))
    except psutil.Error:
        return False


def _below(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.Error:
        return []


def _is_alive(pid: int | None) -> bool:
    with suppress(psutil.Error):
        return pid is not None and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def _kill(pid: int | None) -> None:
    """SIGKILL, and wait until it is gone, or a zombie that its parent does not mind."""
    if pid is None:
        return
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        process.kill()
        deadline = time.monotonic() + 5.0
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE and time.monotonic() < deadline:
            time.sleep(0.02)
