from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest
import yaml

import autotuner
from autotuner.core.errors import InvalidInput
from autotuner.launch.engines.engine import EngineRefused, EngineUnavailable
from autotuner.launch.engines.kubernetes import KUEUE_RIGHTS, RIGHTS
from autotuner.launch.engines.kubernetes_api import Missing, PodLog, Stream
from autotuner.launch.engines.registration import read_engines

# ---------------------------------------------------------------- documentation
PAGE = (Path(autotuner.__file__).parents[1] / "docs/how-to/run-a-sweep-on-kubernetes.md").read_text()


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found[1]


def test_the_role_of_the_page_has_every_right_and_its_registration_can_be_read(tmp_path: Path) -> None:
    role, _ = yaml.safe_load_all(block("yaml"))
    given = {
        (group, *f"{resource}/".split("/")[:2]): tuple(rule["verbs"])
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert given == RIGHTS | KUEUE_RIGHTS
    path = tmp_path / "engines.toml"
    path.write_text(block("toml"))
    registered = read_engines(path)["gpus"]
    assert registered.settings.queues == ("research", "urgent")
    assert registered.own.pod["tolerations"][0]["key"] == "nvidia.com/gpu"


# ---------------------------------------------------------------- settings
COMPLETE = """
[gpus]
kind = "kubernetes"
queues = ["research", "urgent"]
max_parallel_trials = 4
image = "registry.example/trials:1"
namespace = "training"
kubeconfig = "{folder}/kubeconfig"
kueue = true
accelerator = "nvidia.com/gpu"
shared_memory = "16Gi"
labels = {{team = "llm"}}
annotations = {{"sidecar.istio.io/inject" = "false"}}

[gpus.pod]
nodeSelector = {{"node.kubernetes.io/instance-type" = "h100x8"}}
priorityClassName = "batch"
serviceAccountName = "trials"
imagePullSecrets = [{{name = "registry"}}]
tolerations = [{{key = "nvidia.com/gpu", operator = "Exists", effect = "NoSchedule"}}]
volumes = [{{name = "data", persistentVolumeClaim = {{claimName = "data"}}}}]

[gpus.container]
volumeMounts = [{{name = "data", mountPath = "/data", readOnly = true}}]
env = [{{name = "NCCL_IB_HCA", value = "mlx5"}}]

[gpus.container.resources]
limits = {{"rdma/ib" = "1"}}
"""


def refusal(folder: Path, line: str) -> str:
    path = folder / "engines.toml"
    path.write_text(f'[gpus]\nkind = "kubernetes"\nimage = "registry.example/trials:1"\n{line}\n')
    with pytest.raises(InvalidInput) as raised:
        read_engines(path)["gpus"].engine()
    return str(raised.value)


def test_an_operator_describes_pods_in_kubernetes_own_words(tmp_path: Path) -> None:
    path = tmp_path / "engines.toml"
    path.write_text(COMPLETE.format(folder=tmp_path))
    own = read_engines(path)["gpus"].own
    assert own.pod["nodeSelector"] == {"node.kubernetes.io/instance-type": "h100x8"}
    assert own.container["env"] == [{"name": "NCCL_IB_HCA", "value": "mlx5"}]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('pod = {restartPolicy = "Always"}', "pod.restartPolicy"),  # the engine says that of a pod itself
        ('container = {command = ["bash"]}', "container.command"),
        ('kubeconfig = "/nowhere/at/all"', "kubeconfig"),
        ("", "kubeconfig"),  # no service account of a pod either
        ("pod = {nodeSelctor = {a = 'b'}}", "pod.nodeSelctor"),
        ("pod = {nodeSelctor = {a = 'b'}}", "nearest legal value: nodeSelector"),
        ("pod = {tolerations = [{key = 'a', efect = 'NoSchedule'}]}", "nearest legal value: effect"),
        ("container = {resources = {limits = {'nvidia.com/gpu' = 8}}}", "container.resources.limits.nvidia.com/gpu"),
        ("container = {volumeMounts = [{name = 'data'}]}", "container.volumeMounts.0.mountPath"),
    ],
)
def test_an_illegal_pod_template_and_a_missing_cluster_are_refused_when_the_engine_is_made(
    tmp_path: Path, line: str, told: str
) -> None:
    assert told in refusal(tmp_path, line)


@pytest.mark.parametrize("line", ['image = ""', 'namespace = "Mine"', "port = 80", "start_timeout_s = 0.0"])
def test_values_that_no_cluster_would_take_are_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "engines.toml"
    image = "" if line.startswith("image") else 'image = "trials"\n'
    path.write_text(f'[gpus]\nkind = "kubernetes"\n{image}{line}\n')
    with pytest.raises(InvalidInput, match=line.split(" ", maxsplit=1)[0]):
        read_engines(path)


# ---------------------------------------------------------------- pod log
AGES_S = 30.0

LINES = [b"2026-11-22T12:00:00.%09dZ line %d\n" % (number, number) for number in range(6)]
PRINTED = b"".join(b"line %d\n" % number for number in range(6))


class Answer:
    """A log that goes as far as its lines, then ends or raises."""

    def __init__(self, lines: list[bytes], error: Exception | None = None) -> None:
        self._lines, self._error = lines, error

    def __iter__(self) -> Iterator[bytes]:
        yield from self._lines
        if self._error is not None:
            raise self._error

    def __enter__(self) -> Answer:
        return self

    def __exit__(self, *exception: object) -> None:
        return None

    def close(self) -> None:
        return None


class Server:
    """Gives one answer after the other, the last of them for ever; the container has ended when that is the turn."""

    def __init__(self, *answers: Answer | Exception) -> None:
        self._answers = list(answers)
        self.num_asked = 0

    def follow(self) -> Stream:
        self.num_asked += 1
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return cast("Stream", answer)

    def is_over(self) -> bool:
        return len(self._answers) == 1


def whole(server: Server, last_words: Callable[[bytes], bytes] = lambda printed: b"") -> bytes:
    """All that is known once the container has ended."""
    log = PodLog(server.follow, server.is_over, last_words)
    log.wait(AGES_S)
    try:
        return log.read(0)
    finally:
        log.stop()


def test_printed_output_is_served_from_any_byte_on() -> None:
    log = PodLog(Server(Answer(LINES)).follow, lambda: True, lambda printed: b"")
    log.wait(AGES_S)
    assert log.read(0) == PRINTED
    assert log.read(7) == PRINTED[7:]
    assert log.read(10_000) == b""


@pytest.mark.parametrize("num_lines", range(6))
def test_no_line_is_lost_and_none_comes_twice_when_the_connection_breaks(num_lines: int) -> None:
    broken = Answer(LINES[:num_lines], EngineUnavailable("the connection broke"))
    assert whole(Server(broken, Answer(LINES))) == PRINTED


def test_lines_that_are_torn_equal_or_out_of_order_come_once_and_whole() -> None:
    assert whole(Server(Answer([*LINES[:3], LINES[3][:20]]), Answer(LINES))) == PRINTED
    # Standard output and standard error are stamped by two threads.
    swapped = [LINES[1], LINES[0], *LINES[2:]]
    log = whole(Server(Answer(swapped[:2], EngineUnavailable("broke")), Answer(swapped)))
    assert log == b"line 1\nline 0\n" + PRINTED[14:]
    twice = [LINES[0], LINES[0]]
    assert whole(Server(Answer(twice[:1], EngineUnavailable("broke")), Answer(twice))) == b"line 0\nline 0\n"
    assert whole(Server(Answer([b"unable to retrieve container logs for containerd://17\n", *LINES]))) == PRINTED


def test_a_log_ends_once_its_container_has_and_keeps_what_was_heard_and_said_last() -> None:
    server = Server(Answer(LINES[:2]), Answer(LINES[:4]), Answer(LINES))
    assert whole(server) == PRINTED
    assert server.num_asked == 3
    assert whole(Server(Answer(LINES[:3]), Missing("404"))) == b"".join(LINES[n][31:] for n in range(3))
    assert whole(Server(Answer(LINES)), lambda printed: b"killed after %d bytes\n" % len(printed)).endswith(
        b"line 5\nkilled after 42 bytes\n"
    )
    assert whole(Server(RuntimeError("a bug"), Answer(LINES))) == PRINTED


@pytest.mark.parametrize("error", [EngineUnavailable("500"), EngineRefused("400: ContainerCreating")])
def test_a_log_that_is_not_to_be_had_yet_is_asked_for_again(error: Exception) -> None:
    assert whole(Server(error, error, Answer(LINES))) == PRINTED


def test_a_log_that_is_stopped_ends_at_once() -> None:
    opened, ended = threading.Event(), threading.Event()

    class Endless(Answer):
        def __iter__(self) -> Iterator[bytes]:
            opened.set()
            ended.wait(AGES_S)
            yield from ()

        def close(self) -> None:
            ended.set()

    log = PodLog(Server(Endless([])).follow, lambda: False, lambda printed: b"")
    opened.wait(AGES_S)
    log.stop()
    assert ended.is_set()
