"""What runs pods: gives them machines, makes their containers, and says in their status how these stand.

Containers are processes, their logs lines with a moment.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime

import psutil

from autotuner.launch.node_processes import free_port
from tests.kubernetes.controllers import INDEX
from tests.kubernetes.objects import Document, Objects, condition, has_ended, holds, now_text

# ---------------------------------------------------------------- processes

_MARK = "FAKE_CONTAINER"
"""Variable of every process of a container, by which all of them are found."""


class Container:
    """One container that runs: a process and all below it, and what they print.

    Args:
        name: Unique.
        command: With its arguments.
        variables: All that it has.
    """

    def __init__(self, name: str, command: Sequence[str], variables: Mapping[str, str]) -> None:
        self._name = name
        self.started = now_text()
        self.leaves_at = 0.0
        self._lines: list[bytes] = []
        self._changed = threading.Condition()
        self._process = subprocess.Popen(
            list(command),
            env={**variables, _MARK: name},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def exit_code(self) -> int | None:
        """As Kubernetes writes it, 128 and the signal's number where one ended it; None while it runs."""
        code = self._process.poll()
        return 128 - code if code is not None and code < 0 else code

    def leave(self, grace_s: float) -> None:
        """Tell its first process to leave, and end it where it has not after that time."""
        if not self.leaves_at:
            self.leaves_at = time.monotonic() + grace_s
            self._process.send_signal(signal.SIGTERM)
        elif time.monotonic() > self.leaves_at:
            self.kill()

    def kill(self) -> None:
        """End all of its processes, as the end of its first one does in a container, and wait for them."""
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get(_MARK) == self._name:
                    process.kill()
        self._process.wait()
        self._reader.join()

    def log(self, *, follow: bool) -> Iterator[bytes]:
        """Its lines, each after its moment; to the end, where they are followed."""
        sent = 0
        while True:
            with self._changed:
                while follow and sent == len(self._lines) and self._reader.is_alive():
                    self._changed.wait(0.1)
                new, is_last = self._lines[sent:], not self._reader.is_alive()
            yield from new
            sent += len(new)
            if not new and (is_last or not follow):
                return

    def last_words(self) -> str:
        """The end of what it printed."""
        lines = b"".join(line.split(b" ", 1)[1] for line in list(self.log(follow=False))[-80:])
        return lines.decode(errors="replace")[-2048:]

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                now_ns = time.time_ns()
                seconds = datetime.fromtimestamp(now_ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%S")
                with self._changed:
                    self._lines.append(f"{seconds}.{now_ns % 10**9:09d}Z ".encode() + line)
                    self._changed.notify_all()


# ---------------------------------------------------------------- kubelet

_REFERENCE = re.compile(r"\$(\$|\((\w+)\))")
_IMAGE_VARIABLES = ("HOME", "PATH", "LANG", "TMPDIR")
_STATUSES = {"initContainers": "initContainerStatuses", "containers": "containerStatuses"}


class Kubelet:
    """All machines of the cluster.

    Args:
        objects: Of the cluster.
        nodes: Names of the machines; each has room for one pod.

    Attributes:
        lost: Machines that nobody hears of.
        out_of_memory: Pods that the kernel killed for it.
        containers: By pod and name, the newest of a pod last; they are kept for their logs.
    """

    def __init__(self, objects: Objects, nodes: tuple[str, ...]) -> None:
        self._objects = objects
        self.nodes = nodes
        self.lost: set[str] = set()
        self.out_of_memory: set[str] = set()
        self.containers: dict[tuple[str, str], Container] = {}
        self._ports: dict[tuple[str, str], int] = {}

    def run(self) -> None:
        """Bring every pod a step further."""
        for pod in self._objects.all("pods"):
            name, node = pod["metadata"]["name"], pod["spec"].get("nodeName")
            is_leaving = "deletionTimestamp" in pod["metadata"]
            if is_leaving and (not node or has_ended(pod)):
                self._objects.remove("pods", name)
            elif not node:
                self._schedule(name)
            elif node not in self.lost and not has_ended(pod):
                self._advance(name, pod, is_leaving=is_leaving)

    def lose(self, node: str) -> None:
        """Have the machine gone, with all that runs on it, and nobody told."""
        self.lost.add(node)
        for pod in self._objects.all("pods", lambda document: document["spec"].get("nodeName") == node):
            for container in self._containers_of(pod["metadata"]["name"]):
                container.kill()

    def stop(self) -> None:
        """End everything that runs."""
        for container in self.containers.values():
            container.kill()

    def _containers_of(self, pod: str) -> list[Container]:
        return [container for (name, _), container in list(self.containers.items()) if name == pod]

    def _schedule(self, name: str) -> None:
        """Give the pod a machine, or say that there is none."""
        taken = {pod["spec"].get("nodeName") for pod in self._objects.all("pods", lambda pod: not has_ended(pod))}
        free = [node for node in self.nodes if node not in taken | self.lost]

        def change(pod: Document) -> None:
            if free:
                pod["spec"]["nodeName"] = free[0]
                condition(pod, "PodScheduled")
                pod["status"]["startTime"] = now_text()
                _say(pod, "containers", pod["spec"]["containers"][0], waiting={"reason": "ContainerCreating"})
            else:
                told = f"0/{len(self.nodes)} nodes are available: {len(self.nodes)} Insufficient nvidia.com/gpu."
                condition(pod, "PodScheduled", "Unschedulable", told, "False")

        self._objects.change("pods", name, change)

    # ------------------------------------------------------------------ one pod
    def _advance(self, name: str, pod: Document, *, is_leaving: bool) -> None:
        """Start the pod's next container, or see how the last one does."""
        main = pod["spec"]["containers"][0]
        waiting = [("initContainers", one) for one in pod["spec"].get("initContainers", [])] + [("containers", main)]
        kind, spec = waiting[max(0, len(self._containers_of(name)) - 1)]
        running = self.containers.get((name, spec["name"]))
        if running is None:
            if is_leaving:
                self._end(name, "Failed")
            elif self._resolves(pod):
                self._start(name, pod, kind, spec)
            return
        code = running.exit_code
        if code is None:
            if is_leaving:
                running.leave(pod["metadata"]["deletionGracePeriodSeconds"])
            return
        if pod["spec"]["nodeName"] in self.lost:
            return
        running.kill()
        ended: Document = {"exitCode": code, "reason": "Error" if code else "Completed", "startedAt": running.started}
        if name in self.out_of_memory:
            ended |= {"exitCode": 137, "reason": "OOMKilled"}
        elif code:
            ended["message"] = running.last_words()
        self._objects.change("pods", name, lambda document: _say(document, kind, spec, terminated=ended))
        if code or kind == "containers":
            self._end(name, "Failed" if code else "Succeeded")
        else:
            self._start(name, pod, *waiting[waiting.index((kind, spec)) + 1])

    def _resolves(self, pod: Document) -> bool:
        """Whether there is a headless Service that gives this pod its name; a real one resolves a moment later too."""
        subdomain = pod["spec"].get("subdomain")
        made = self._objects.get("services", subdomain) if subdomain else None
        if made is None or made["spec"].get("clusterIP") != "None":
            return not subdomain
        return bool(made["spec"]["selector"].items() <= pod["metadata"]["labels"].items())

    def _start(self, name: str, pod: Document, kind: str, spec: Document) -> None:
        variables = {one: os.environ[one] for one in _IMAGE_VARIABLES if one in os.environ}
        variables |= {one["name"]: _expanded(one["value"], {}) for one in spec.get("env", [])}
        variables["JOB_COMPLETION_INDEX"] = pod["metadata"]["annotations"].get(INDEX, "0")
        command = [_expanded(word, variables) for word in (*spec["command"], *spec.get("args", []))]
        state: Document
        try:
            container = Container(f"{name}/{spec['name']}", self._addressed(pod, command), variables)
        except OSError as error:
            told = f"failed to create containerd task: {error}"
            state = {"terminated": {"exitCode": 128, "reason": "StartError", "message": told}}
        else:
            self.containers[name, spec["name"]] = container
            state = {"running": {"startedAt": container.started}}
        self._objects.change("pods", name, lambda document: _say(document, kind, spec, **state))
        if "terminated" in state:
            self._end(name, "Failed")

    def _end(self, name: str, phase: str) -> None:
        self._objects.change("pods", name, lambda document: document["status"].update(phase=phase))

    def _addressed(self, pod: Document, command: list[str]) -> list[str]:
        """The command with names of pods that resolve, and ports that are free for this job, on this machine."""
        job = pod["metadata"]["labels"]["batch.kubernetes.io/job-name"]
        master = f"{job}-0.{pod['spec'].get('subdomain')}"
        words = ["127.0.0.1" if word == master else word for word in command]
        for at in [at for at, word in enumerate(words) if word == "--master-port"]:
            words[at + 1] = str(self._ports.setdefault((job, words[at + 1]), free_port()))
        return words


def _expanded(text: str, variables: Mapping[str, str]) -> str:
    """``$(NAME)`` as its value where it is known, and ``$$`` as a dollar."""
    return _REFERENCE.sub(lambda found: "$" if found[1] == "$" else variables.get(found[2], found[0]), text)


def _say(pod: Document, kind: str, spec: Document, **state: Document) -> None:
    """Have a pod say how one of its containers stands."""
    image = spec["image"]
    told = {"name": spec["name"], "image": image, "imageID": image, "ready": "running" in state, "restartCount": 0}
    others = [one for one in pod["status"].get(_STATUSES[kind], []) if one["name"] != spec["name"]]
    pod["status"][_STATUSES[kind]] = [*others, {**told, "state": state}]
    if kind == "containers" and "running" in state:
        pod["status"]["phase"] = "Running"
    if "running" in state and not holds(pod, "Ready"):
        condition(pod, "Ready")
