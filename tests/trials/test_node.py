"""A node of an engine's job, with and without Ray: its ranks' lines come out, and nothing outlives it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from autotuner.core import codec
from autotuner.core.codec import dumps
from autotuner.core.node_line import PREFIX
from autotuner.core.trial_spec import NodeTask
from autotuner.host.machine_facts import host_hash
from autotuner.launch.node_processes import free_port
from autotuner.trials.process.gathering import gather
from autotuner.trials.process.ray_node import NodeActor
from autotuner.trials.process.task import TaskContext
from autotuner.trials.rank import RankInfo
from tests.patience import PATIENCE_S
from tests.system.service import until
from tests.trials.launching import SHORT, left_over, spec

# ---------------------------------------------------------------- node

LEFT_BEHIND = (
    "import os, time; os.fork() or (os.setsid(), time.sleep(600)); print('hello', flush=True); time.sleep(600)"
)
"""A trainer that goes on, and starts a process in a session of its own."""


def task(*command: str, **changes: Any) -> NodeTask:
    plain = NodeTask(job_name=f"t-{os.getpid()}-node-0-0", num_nodes=1, ranks_per_node=1, time_limit_s=60.0)
    return replace(plain, command=command, spec=spec("node", replace(SHORT, timeout_s=PATIENCE_S)), **changes)


def node(task: NodeTask, **variables: str) -> subprocess.Popen[bytes]:
    place = ("--node-rank", "0", "--master-address", "127.0.0.1", "--master-port", str(free_port()))
    return subprocess.Popen(
        [sys.executable, "-m", "autotuner.trials.process.node", *place],
        env={**os.environ, "AUTOTUNER_TASK": dumps(task), **variables},
        stdout=subprocess.PIPE,
    )


def lines_of(output: bytes) -> list[dict[str, Any]]:
    return [json.loads(line.removeprefix(PREFIX)) for line in output.splitlines() if line.startswith(PREFIX)]


def told(task: NodeTask, **variables: str) -> tuple[list[dict[str, Any]], int]:
    """What a node tells, and its exit code."""
    process = node(task, **variables)
    output, _ = process.communicate(timeout=PATIENCE_S)
    return lines_of(output), process.returncode


def printed(lines: Sequence[dict[str, Any]]) -> list[str]:
    return [line["text"] for line in lines if line["type"] == "printed"]


def python(code: str) -> tuple[str, ...]:
    return ("{python}", "-S", "-c", code)


def test_a_commands_lines_come_out_between_its_start_and_its_end() -> None:
    lines, code = told(task(*python("print('one'); print('two')")))
    assert [line["type"] for line in lines if line["type"] != "cpu"] == [
        *("node_started", "trainer", "printed", "printed", "node")
    ]
    assert printed(lines) == ["one", "two"]
    assert (code, lines[-1]["exit_code"]) == (0, 0)


def test_output_of_a_command_arrives_in_lines_and_endless_lines_in_pieces() -> None:
    writes = "import os; os.write(1, b' 5%| 1/20\\r      \\r\\xff\\n\\nlast' + b'x' * 200_000)"
    lines, _ = told(task(*python(writes)))
    bar, odd, *rest = printed(lines)
    assert (bar, odd, "".join(rest)) == (" 5%| 1/20", "\ufffd", "last" + "x" * 200_000)
    assert len(rest) > 1


def test_a_node_that_ends_by_itself_reports_it() -> None:
    lines, _ = told(task(*python("raise SystemExit(1)")))
    assert lines[-1]["told_to_end"] is False


def test_a_command_knows_its_node_and_its_files() -> None:
    code = "import sys; print(open(sys.argv[1]).read(), *sys.argv[2:])"
    command = (*python(code), "{folder}/layout.txt", "{num_nodes}", "{node_rank}", "{ranks_per_node}")
    lines, _ = told(task(*command, files={"layout.txt": "tp2"}))
    assert printed(lines) == ["tp2 1 0 1"]


def test_a_command_gets_the_variables_that_its_operator_named_and_sees_nothing_of_the_service() -> None:
    named = ("SECRET", "NAMED", "OWN", "AUTOTUNER_TASK", "AUTOTUNER_DATABASE_URL")
    wanted = task(
        *python(f"import os; print(*map(os.environ.get, {named}))"), passed=("NAMED",), variables={"OWN": "o"}
    )
    lines, _ = told(wanted, SECRET="s", NAMED="n", AUTOTUNER_DATABASE_URL="secret")
    assert printed(lines) == ["None n o None None"]


def test_steps_that_a_trainer_reports_come_out_as_they_are_reported() -> None:
    code = "import os; open(os.environ['AUTOTUNER_REPORT_DIR'] + '/rank-0.jsonl', 'w').write('{\"step\":0}\\n')"
    lines, _ = told(task(*python(code)))
    (_, *reported) = [line["line"] for line in lines if line["type"] == "trainer"]
    assert reported == ['{"step":0}']


def test_the_node_reports_where_a_trainer_runs() -> None:
    lines, _ = told(task(*python("pass"), variables={"NCCL_ALGO": "Tree", "MY_TOKEN": "s"}))
    (line,) = [line for line in lines if line["type"] == "trainer"]
    environment = json.loads(line["line"])["environment"]
    assert (environment["host"], environment["NCCL_ALGO"]) == (host_hash(), "Tree")
    assert "s" not in environment.values()


def test_past_the_time_limit_everything_is_ended_and_said_so() -> None:
    limited = task(*python(LEFT_BEHIND), time_limit_s=1.5)
    lines, code = told(limited)
    assert lines[-1]["timed_out"]
    assert code == 1
    assert left(limited) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_node_that_gets_sigterm_or_is_killed_ends_all_processes_that_it_started(number: signal.Signals) -> None:
    endless = task(*python(LEFT_BEHIND))
    process = node(endless)
    assert process.stdout is not None
    while b"hello" not in process.stdout.readline():
        pass
    process.send_signal(number)
    rest, _ = process.communicate(timeout=PATIENCE_S)
    if number == signal.SIGTERM:
        assert (lines_of(rest)[-1]["type"], lines_of(rest)[-1]["told_to_end"], process.returncode) == ("node", True, 1)
        assert left(endless) == []
    until("nothing is left", lambda: left(endless) == [])


@pytest.mark.oracle  # starts torchrun
def test_ranks_of_ours_report_as_they_do_on_this_machine() -> None:
    ours = replace(task(ranks_per_node=2), spec=spec("node"), variables={"GLOO_SOCKET_IFNAME": "lo"})
    lines, code = told(ours)
    kinds = [line["type"] for line in lines if line["type"] != "printed"]
    assert kinds == ["node_started", "started", "step", "step", "step", "measurement", "node"]
    assert code == 0


def test_a_task_that_cannot_be_read_is_refused() -> None:
    process = subprocess.run(
        [
            sys.executable,
            "-m",
            "autotuner.trials.process.node",
            *["--node-rank", "0", "--master-address", "a", "--master-port", "1"],
        ],
        env={**os.environ, "AUTOTUNER_TASK": "{}"},
        capture_output=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert process.returncode == 2
    assert b"cannot read the task" in process.stderr


def left(task: NodeTask) -> list[psutil.Process]:
    """Live processes of the job."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("AUTOTUNER_ATTEMPT_ID") == task.job_name and process.status() != "zombie":
                found.append(process)
        except psutil.Error:
            continue
    return found


# ---------------------------------------------------------------- ray node

PLACE = ("--node-rank", "0", "--master-address", "127.0.0.1", "--master-port", "1")


def sleeping(name: str) -> str:
    """A task whose only process is asleep."""
    task = NodeTask(job_name=name, num_nodes=1, ranks_per_node=1, time_limit_s=60.0, command=("sleep", "600"))
    return codec.dumps(task)


def until_ended(node: NodeActor) -> tuple[bytes, dict[str, Any]]:
    """All that it prints, and how it ended."""
    printed = b""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        answer = node.read(1.0)
        printed += answer["output"]
        if answer["exit_code"] is not None:
            return printed, answer
    raise AssertionError(printed)


def test_a_node_that_cannot_read_its_task_ends_with_its_code_and_its_last_words() -> None:
    node = NodeActor()
    node.start("", PLACE, "no task")
    printed, ending = until_ended(node)
    assert printed == b""
    assert ending["exit_code"] == 2
    assert "cannot read the task" in ending["last_words"]


def test_an_interpreter_that_is_not_there_is_named() -> None:
    node = NodeActor()
    node.start("/no/python", PLACE, "")
    assert "/no/python" in until_ended(node)[1]["last_words"]


def test_a_node_that_is_stopped_leaves_nothing() -> None:
    node = NodeActor()
    node.start("", PLACE, sleeping("ray-node-stopped"))
    assert b"node_started" in node.read(60.0)["output"]
    node.stop()
    assert until_ended(node)[1]["exit_code"] != 0
    assert list(left_over("ray-node-stopped")) == []


def test_a_node_that_was_stopped_before_it_started_never_does() -> None:
    node = NodeActor()
    node.stop()
    node.start("", PLACE, sleeping("ray-node-never"))
    assert until_ended(node)[0] == b""


# ---------------------------------------------------------------- gathering


def test_nobody_goes_on_before_the_last_is_there() -> None:
    address, gone_on = ("127.0.0.1", free_port()), threading.Semaphore(0)

    def node(rank: int) -> None:
        gather(rank, 4, address)
        gone_on.release()

    with ThreadPoolExecutor(4) as threads:
        early = [threads.submit(node, rank) for rank in (3, 0, 1)]
        assert not gone_on.acquire(timeout=1.0)
        early.append(threads.submit(node, 2))
        for one in early:
            one.result(PATIENCE_S)


def test_a_node_that_connects_again_is_counted_once() -> None:
    address = ("127.0.0.1", free_port())
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(gather, 0, 3, address)
        for _ in range(2):
            with _connected(address) as connection:
                connection.sendall(b"1")
        with _connected(address) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n")
        time.sleep(0.5)
        assert not first.done()
        with _connected(address) as connection:
            connection.sendall(b"1")
            threads.submit(gather, 2, 3, address).result(PATIENCE_S)
            first.result(PATIENCE_S)


@contextmanager
def _connected(address: tuple[str, int]) -> Iterator[socket.socket]:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            connection = socket.create_connection(address)
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.02)
            continue
        with connection:
            yield connection
        return


def test_a_waiting_node_leaves_at_sigterm() -> None:
    """As the first process of a container, which ignores SIGTERM unless it says otherwise."""
    command = [sys.executable, "-m", "autotuner.trials.process.gathering", "--node-rank", "1", "--num-nodes", "2"]
    address = ["--master-address", "127.0.0.1", "--master-port", str(free_port())]
    process = subprocess.Popen([*command, *address], env=os.environ)
    time.sleep(1.0)
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) in (128 + signal.SIGTERM, -signal.SIGTERM)


# ---------------------------------------------------------------- task


def test_data_in_the_rendezvous_stays_after_every_rank_closed_it(tmp_path: Path) -> None:
    context = TaskContext(folder=tmp_path, rank_info=RankInfo())
    context.store().set("address", "here")
    store = context.store()
    assert store.check(["address"])
    assert store.get("address") == b"here"
