"""The part of a node in a job on Ray, without Ray: the actor is a plain object here."""

from __future__ import annotations

import time
from typing import Any

from autotuner.core import codec
from autotuner.core.trial_spec import NodeTask
from tests.patience import PATIENCE_S
from tests.trials.launching import left_over
from trials.process.ray_node import NodeActor

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
