"""What runs on a node of an engine's job: its ranks' lines come out, and nothing outlives it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import psutil
import pytest

from autotuner.core.codec import dumps
from autotuner.core.trial_spec import NodeTask
from autotuner.host.machine import host_hash
from autotuner.launch.ranks import free_port
from tests.patience import PATIENCE_S
from tests.system.service import until
from tests.trials.launching import SHORT, spec
from trials.process.node import PREFIX

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
        [sys.executable, "-m", "trials.process.node", *place],
        env={**os.environ, "AUTOTUNER_TASK": dumps(task), **variables},
        stdout=subprocess.PIPE,
    )


def lines_of(output: bytes) -> list[dict[str, Any]]:
    return [json.loads(line.removeprefix(PREFIX)) for line in output.decode().splitlines() if line.startswith(PREFIX)]


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
    assert [line["type"] for line in lines] == ["node_started", "told", "printed", "printed", "node"]
    assert printed(lines) == ["one", "two"]
    assert (code, lines[-1]["exit_code"]) == (0, 0)


def test_a_node_says_whether_somebody_told_it_to_end() -> None:
    lines, _ = told(task(*python("raise SystemExit(1)")))
    assert lines[-1]["told_to_end"] is False
    process = node(task(*python("import time; print('runs', flush=True); time.sleep(600)")))
    assert process.stdout is not None
    while b'"runs"' not in process.stdout.readline():
        pass
    process.terminate()
    output, _ = process.communicate(timeout=100.0)
    assert lines_of(output)[-1]["told_to_end"] is True


def test_a_command_knows_its_node_and_its_files() -> None:
    code = "import sys; print(open(sys.argv[1]).read(), *sys.argv[2:])"
    command = (*python(code), "{folder}/layout.txt", "{num_nodes}", "{node_rank}", "{ranks_per_node}")
    lines, _ = told(task(*command, files={"layout.txt": "tp2"}))
    assert printed(lines) == ["tp2 1 0 1"]


def test_a_command_gets_the_variables_that_its_operator_named_and_no_others() -> None:
    code = "import os; print(os.environ.get('SECRET'), os.environ.get('NAMED'), os.environ.get('OWN'))"
    lines, _ = told(task(*python(code), passed=("NAMED",), variables={"OWN": "o"}), SECRET="s", NAMED="n")
    assert printed(lines) == ["None n o"]


def test_steps_that_a_trainer_reports_come_out_as_they_are_reported() -> None:
    code = "import os; open(os.environ['AUTOTUNER_REPORT_DIR'] + '/rank-0.jsonl', 'w').write('{\"step\":0}\\n')"
    lines, _ = told(task(*python(code)))
    (_, *reported) = [(line["file"], line["line"]) for line in lines if line["type"] == "told"]
    assert reported == [("rank-0.jsonl", '{"step":0}')]


def test_of_a_trainer_the_node_tells_where_it_runs() -> None:
    lines, _ = told(task(*python("pass"), variables={"NCCL_ALGO": "Tree", "MY_TOKEN": "s"}))
    (line,) = [line for line in lines if line["type"] == "told"]
    environment = json.loads(line["line"])["environment"]
    assert line["file"] == "node-0.jsonl"
    assert (environment["host"], environment["NCCL_ALGO"]) == (host_hash(), "Tree")
    assert "s" not in environment.values()


def test_past_the_time_limit_everything_is_ended_and_said_so() -> None:
    limited = task(*python(LEFT_BEHIND), time_limit_s=1.5)
    lines, code = told(limited)
    assert lines[-1]["timed_out"]
    assert code == 1
    assert left(limited) == []


def test_a_node_that_is_told_to_end_ends_all_that_it_started() -> None:
    endless = task(*python(LEFT_BEHIND))
    process = node(endless)
    assert process.stdout is not None
    while b"hello" not in process.stdout.readline():
        pass
    process.send_signal(signal.SIGTERM)
    rest, _ = process.communicate(timeout=PATIENCE_S)
    assert lines_of(rest)[-1]["type"] == "node"
    assert process.returncode == 1
    assert left(endless) == []


def test_a_node_that_is_killed_takes_all_along() -> None:
    endless = task(*python(LEFT_BEHIND))
    process = node(endless)
    assert process.stdout is not None
    while b"hello" not in process.stdout.readline():
        pass
    process.kill()
    process.communicate(timeout=PATIENCE_S)
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
            "trials.process.node",
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


@pytest.mark.parametrize("variable", ["AUTOTUNER_TASK", "AUTOTUNER_DATABASE_URL"])
def test_a_trainer_sees_nothing_of_the_service(variable: str) -> None:
    lines, _ = told(task(*python(f"import os; print({variable!r} in os.environ)")), AUTOTUNER_DATABASE_URL="secret")
    assert printed(lines) == ["False"]
