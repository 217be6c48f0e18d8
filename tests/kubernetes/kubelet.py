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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial

import psutil

from autotuner.launch.ranks import free_port
from tests.kubernetes.objects import Document, Objects, Refused, condition, holds, now_text

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

    def terminate(self) -> None:
        """Tell its first process to leave."""
        with suppress(OSError):
            self._process.send_signal(signal.SIGTERM)

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

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                with self._changed:
                    self._lines.append(_moment() + b" " + line)
                    self._changed.notify_all()


def own_variables() -> dict[str, str]:
    """What an image would bring."""
    return {name: os.environ[name] for name in ("HOME", "PATH", "LANG", "TMPDIR") if name in os.environ}


def _moment() -> bytes:
    now_ns = time.time_ns()
    seconds = datetime.fromtimestamp(now_ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{seconds}.{now_ns % 10**9:09d}Z".encode()


# ---------------------------------------------------------------- kubelet

_POLL_S = 0.02
_INDEX = "batch.kubernetes.io/job-completion-index"
_REFERENCE = re.compile(r"\$(\$|\((\w+)\))")


class Kubelet:
    """All machines of the cluster.

    Args:
        objects: Of the cluster.
        nodes: Names of the machines; each has room for one pod.

    Attributes:
        broken_images: That cannot be pulled.
        lost: Machines that nobody hears of.
        containers: By pod and name; they are kept for their logs as long as their pod.
    """

    def __init__(self, objects: Objects, nodes: tuple[str, ...]) -> None:
        self._objects = objects
        self.nodes = nodes
        self.broken_images: set[str] = set()
        self.lost: set[str] = set()
        self.out_of_memory: set[str] = set()
        self.containers: dict[tuple[str, str], Container] = {}
        self._ports: dict[tuple[str, str], int] = {}
        self._threads: dict[str, threading.Thread] = {}

    def schedule(self) -> None:
        """Give machines to pods that wait for one."""
        pods = self._objects.all("pods")
        taken = {pod["spec"].get("nodeName") for pod in pods if not _has_ended(pod)}
        for pod in pods:
            if pod["spec"].get("nodeName") or "deletionTimestamp" in pod["metadata"]:
                continue
            free = [node for node in self.nodes if node not in taken | self.lost]
            name = pod["metadata"]["name"]
            if not free:
                message = f"0/{len(self.nodes)} nodes are available: {len(self.nodes)} Insufficient nvidia.com/gpu."
                unschedulable = partial(_scheduled, status="False", reason="Unschedulable", message=message)
                self._objects.change("pods", name, unschedulable)
                continue
            taken.add(free[0])
            self._objects.change("pods", name, partial(_bound, node=free[0]))
            thread = threading.Thread(target=self._run, args=(name,), daemon=True)
            self._threads[name] = thread
            thread.start()

    def tidy(self) -> None:
        """Remove pods that never had a machine, and what is kept of those that are gone."""
        for pod in self._objects.all("pods"):
            if "deletionTimestamp" in pod["metadata"] and (not pod["spec"].get("nodeName") or _has_ended(pod)):
                self._objects.remove("pods", pod["metadata"]["name"])

    def lose(self, node: str) -> None:
        """Have the machine gone, with all that runs on it, and nobody told."""
        self.lost.add(node)
        for pod in self._objects.all("pods", lambda document: document["spec"].get("nodeName") == node):
            self._kill(pod["metadata"]["name"])

    def stop(self) -> None:
        """End everything that runs."""
        for name in list(self._threads):
            self.lost.add(str((self._objects.get("pods", name) or {"spec": {}})["spec"].get("nodeName")))
            self._kill(name)
        for thread in self._threads.values():
            thread.join()

    def _kill(self, pod: str) -> None:
        for (name, _), container in list(self.containers.items()):
            if name == pod:
                container.kill()

    # ------------------------------------------------------------------ one pod
    def _run(self, name: str) -> None:
        with suppress(_Left, Refused):  # refused: the pod is gone
            self._start(name)

    def _start(self, name: str) -> None:
        pod = self._objects.need("pods", name)
        self._objects.change("pods", name, _acknowledged)
        self._until(name, lambda: self._has_image(name, pod), _Limit())
        self._until(name, lambda: self._resolves(pod), _Limit())
        limit = _Limit(pod["spec"].get("activeDeadlineSeconds"))
        for spec in pod["spec"].get("initContainers", []):
            code = self._container(name, pod, spec, "initContainerStatuses", limit)
            if code != 0:
                self._end(name, "Failed")
                return
        code = self._container(name, pod, pod["spec"]["containers"][0], "containerStatuses", limit)
        self._end(name, "Succeeded" if code == 0 else "Failed")

    def _has_image(self, name: str, pod: Document) -> bool:
        image = pod["spec"]["containers"][0]["image"]
        if image not in self.broken_images:
            return True
        waiting = {"reason": "ImagePullBackOff", "message": f'Back-off pulling image "{image}"'}
        self._objects.change("pods", name, lambda document: _status(document, "containerStatuses", waiting=waiting))
        return False

    def _resolves(self, pod: Document) -> bool:
        """Whether there is a headless Service that gives this pod its name; a real one resolves a moment later too."""
        subdomain = pod["spec"].get("subdomain")
        if not subdomain:
            return True
        made = self._objects.get("services", subdomain)
        if made is None or made["spec"].get("clusterIP") != "None":
            return False
        return set(made["spec"]["selector"].items()) <= set(pod["metadata"]["labels"].items())

    def _container(self, name: str, pod: Document, spec: Document, where: str, limit: _Limit) -> int:
        """The exit code of one container that ran."""
        variables = own_variables() | {one["name"]: _expanded(one["value"], {}) for one in spec.get("env", [])}
        variables["JOB_COMPLETION_INDEX"] = pod["metadata"]["annotations"].get(_INDEX, "0")
        command = [_expanded(word, variables) for word in (*spec["command"], *spec.get("args", []))]
        try:
            container = Container(f"{name}/{spec['name']}", self._addressed(pod, command), variables)
        except OSError as error:
            told = {"exitCode": 128, "reason": "StartError", "message": f"failed to create containerd task: {error}"}
            self._objects.change("pods", name, lambda document: _status(document, where, spec["name"], terminated=told))
            return 128
        self.containers[name, spec["name"]] = container
        started = now_text()
        running = {"startedAt": started}
        self._objects.change("pods", name, lambda document: _status(document, where, spec["name"], running=running))
        try:
            self._until(name, lambda: container.exit_code is not None, limit)
        finally:
            container.kill()
        code = container.exit_code
        assert code is not None
        ended: Document = {"exitCode": code, "reason": "Completed" if code == 0 else "Error", "startedAt": started}
        if name in self.out_of_memory:
            ended |= {"exitCode": 137, "reason": "OOMKilled"}
        elif code:
            lines = b"".join(line.split(b" ", 1)[1] for line in list(container.log(follow=False))[-80:])
            ended["message"] = lines.decode(errors="replace")[-2048:]
        self._objects.change("pods", name, lambda document: _status(document, where, spec["name"], terminated=ended))
        return int(ended["exitCode"])

    def _until(self, name: str, happened: Callable[[], bool], limit: _Limit) -> None:
        """Wait; a pod that is told to leave, or stays too long, is ended; one whose machine is lost says no more."""
        told_at = 0.0
        while not happened():
            pod = self._objects.get("pods", name)
            if pod is None or pod["spec"]["nodeName"] in self.lost:
                raise _Left
            if limit.is_past:
                self._end(name, "Failed", "DeadlineExceeded", "Pod was active on the node longer than the deadline")
                raise _Left
            if "deletionTimestamp" in pod["metadata"]:
                container = self._newest(name)
                if container is None:
                    self._end(name, "Failed")
                    raise _Left
                if not told_at:
                    told_at = time.monotonic()
                    container.terminate()
                if time.monotonic() > told_at + pod["metadata"]["deletionGracePeriodSeconds"]:
                    container.kill()
            time.sleep(_POLL_S)
        if (self._objects.get("pods", name) or {"spec": {"nodeName": ""}})["spec"]["nodeName"] in self.lost:
            raise _Left

    def _newest(self, pod: str) -> Container | None:
        own = [container for (name, _), container in self.containers.items() if name == pod]
        return own[-1] if own else None

    def _end(self, name: str, phase: str, reason: str = "", message: str = "") -> None:
        def ended(document: Document) -> None:
            document["status"]["phase"] = phase
            if reason:
                document["status"] |= {"reason": reason, "message": message}

        self._objects.change("pods", name, ended)

    def _addressed(self, pod: Document, command: list[str]) -> list[str]:
        """The command with names of pods that resolve, and ports that are free for this job, on this machine."""
        job = pod["metadata"]["labels"]["batch.kubernetes.io/job-name"]
        master = f"{job}-0.{pod['spec'].get('subdomain')}"
        words = ["127.0.0.1" if word == master else word for word in command]
        for at, word in enumerate(words[:-1]):
            if word == "--master-port":
                key = (job, words[at + 1])
                with self._objects.lock:
                    words[at + 1] = str(self._ports.setdefault(key, free_port()))
        return words


class _Left(Exception):
    """The pod is no longer run here."""


class _Limit:
    def __init__(self, seconds: float | None = None) -> None:
        self._until = float("inf") if seconds is None else time.monotonic() + seconds

    @property
    def is_past(self) -> bool:
        """The time is up."""
        return time.monotonic() > self._until


def _expanded(text: str, variables: dict[str, str]) -> str:
    """``$(NAME)`` as its value where it is known, and ``$$`` as a dollar."""
    return _REFERENCE.sub(lambda found: "$" if found[1] == "$" else variables.get(found[2], found[0]), text)


def _has_ended(pod: Document) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def _scheduled(document: Document, *, status: str, reason: str = "", message: str = "") -> None:
    condition(document, "PodScheduled", reason, message, status)


def _bound(document: Document, *, node: str) -> None:
    document["spec"]["nodeName"] = node
    _scheduled(document, status="True")


def _acknowledged(document: Document) -> None:
    document.setdefault("status", {}).setdefault("startTime", now_text())
    _status(document, "containerStatuses", waiting={"reason": "ContainerCreating"})


def _status(document: Document, where: str, container: str = "", **state: Document) -> None:
    """Have a pod say how one of its containers stands."""
    kind = "initContainers" if where == "initContainerStatuses" else "containers"
    spec = next(one for one in document["spec"][kind] if container in ("", one["name"]))
    told = {
        "name": spec["name"],
        "image": spec["image"],
        "imageID": spec["image"],
        "ready": "running" in state,
        "restartCount": 0,
        "state": state,
    }
    status = document.setdefault("status", {})
    others = [one for one in status.get(where, []) if one["name"] != spec["name"]]
    status[where] = [*others, told]
    if where == "containerStatuses" and "running" in state:
        status["phase"] = "Running"
    if not holds(document, "Ready") and "running" in state:
        condition(document, "Ready")
