"""FakeCluster: a Kubernetes of this machine, with ways to disturb it."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import autotuner
from tests.kubernetes.controllers import INDEX, Controllers
from tests.kubernetes.kubelet import Kubelet
from tests.kubernetes.objects import Document, Objects, condition
from tests.kubernetes.server import ApiServer, Faults

_PASS_S = 0.05


class FakeCluster:
    """One namespace, a few machines with room for one pod each, an API server on a port.

    Args:
        folder: Gets a kubeconfig.
        num_nodes: Machines.
    """

    def __init__(self, folder: Path, num_nodes: int = 2) -> None:
        self.has_packages = True
        self.objects, self.faults = Objects(), Faults()
        self.kubelet = Kubelet(self.objects, tuple(f"node-{number}" for number in range(num_nodes)))
        self.controllers = Controllers(self.objects)
        self.server = ApiServer(self.objects, self.kubelet, self.faults)
        self.kubeconfig = folder / "kubeconfig.yaml"
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> FakeCluster:
        self.server.start()
        self.kubeconfig.write_text(_KUBECONFIG.format(url=self.server.url))
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stopped.set()
        self._thread.join()
        self.kubelet.stop()
        self.server.stop()

    def table(self, more: str = "", grace_s: int = 10) -> str:
        """What an operator's file says of it: kind, kubeconfig, and an image that is this machine's own Python.

        Args:
            more: Lines of the table itself.
            grace_s: What pods get to leave; a node needs some seconds to end its ranks.
        """
        variables = {
            "PYTHONPATH": Path(autotuner.__file__).parents[1] if self.has_packages else "",
            "PYTHONDONTWRITEBYTECODE": os.environ.get("PYTHONDONTWRITEBYTECODE", ""),
        }
        return "\n".join(
            (
                'kind = "kubernetes"',
                'image = "registry.example/trials:1"',
                f'kubeconfig = "{self.kubeconfig}"',
                f'python = "{sys.executable if self.has_packages else f"{sys.base_prefix}/bin/python3"}"',
                "poll_s = 0.1",
                f"grace_s = {grace_s}",
                more,
                "container.env = [",
                *(f'  {{name = "{name}", value = "{value}"}},' for name, value in variables.items()),
                "]",
            )
        )

    def pod(self, job: str, index: int) -> Document:
        """That pod of a job, as it is now."""
        return next(
            pod
            for pod in self.objects.all("pods", lambda pod: pod["metadata"]["labels"]["autotuner/job"] == job)
            if pod["metadata"]["annotations"][INDEX] == str(index)
        )

    def evict(
        self, pod: Document, reason: str = "EvictionByEvictionAPI", message: str = "Eviction API: evicting"
    ) -> None:
        """Have the pod leave in good order, for the cluster's own reasons."""
        name = pod["metadata"]["name"]
        self.objects.change("pods", name, lambda document: condition(document, "DisruptionTarget", reason, message))
        self.delete_pod(pod)

    def delete_pod(self, pod: Document) -> None:
        """As a person would."""
        grace_s = pod["spec"].get("terminationGracePeriodSeconds", 30)
        self.objects.delete("pods", pod["metadata"]["name"], grace_s=grace_s)

    def lose_node(self, pod: Document, *, is_noticed: bool = True, is_removed: bool = False) -> None:
        """Cut the power of the machine that the pod runs on.

        Args:
            pod: On it.
            is_noticed: The cluster evicts the pod, which stays, as nobody can say that it has left.
            is_removed: The machine is taken out of the cluster, and its pods with it, as clouds do.
        """
        self.kubelet.lose(pod["spec"]["nodeName"])
        if is_noticed:
            self.evict(pod, "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")
        if is_removed:
            self.objects.remove("pods", pod["metadata"]["name"])

    def mend_nodes(self) -> None:
        """Have lost machines come back, empty: pods that were told to leave are gone."""
        lost = set(self.kubelet.lost)
        for pod in self.objects.all("pods", lambda document: document["spec"].get("nodeName") in lost):
            self.objects.remove("pods", pod["metadata"]["name"])
        self.kubelet.lost.clear()

    def kill_for_memory(self, pod: Document) -> None:
        """Kill all processes of the pod's container, as the kernel does."""
        name = pod["metadata"]["name"]
        self.kubelet.out_of_memory.add(name)
        self.kubelet.containers[name, "node"].kill()

    def suspend(self, job: str) -> None:
        """Take its place in the queue away, as Kueue does for others that matter more."""
        self.controllers.admits = False
        self.controllers.suspend(job, suspend=True)

    def until(self, happened: Callable[[], bool], timeout_s: float = 30.0) -> None:
        """Wait for it."""
        deadline = time.monotonic() + timeout_s
        while not happened():
            assert time.monotonic() < deadline, f"it did not happen within {timeout_s} s"
            time.sleep(_PASS_S)

    def _run(self) -> None:
        while not self._stopped.is_set():
            self.controllers.run()
            self.kubelet.run()
            with self.objects.lock:
                self.objects.lock.wait(_PASS_S)
            time.sleep(0.01)


_KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: fake
clusters: [{{name: fake, cluster: {{server: "{url}"}}}}]
users: [{{name: nobody, user: {{token: none}}}}]
contexts: [{{name: fake, context: {{cluster: fake, user: nobody}}}}]
"""
