"""The HTTP side of a cluster: discovery, objects and logs as Kubernetes' API server has them."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.kubernetes.kubelet import Kubelet
from tests.kubernetes.objects import Document, Objects, Refused, check, labelled

_APIS = {
    "/api/v1": {"pods": "Pod", "services": "Service"},
    "/apis/batch/v1": {"jobs": "Job"},
}
_PATH = re.compile(
    r"(?P<api>/api/v1|/apis/batch/v1)/namespaces/(?P<namespace>[^/]+)"
    r"/(?P<plural>[a-z]+)(?:/(?P<name>[^/]+)(?:/(?P<below>[a-z]+))?)?"
)


@dataclass
class Faults:
    """What goes wrong."""

    refusals: list[tuple[str, int, str, str]] = field(default_factory=list)
    """Answers of status and reason to the next requests whose method and path match, with how many."""
    forbidden: set[str] = field(default_factory=set)
    """Verbs and resources, such as ``delete jobs``, that nobody has a right to."""
    is_down: bool = False
    """Every connection ends without an answer."""
    cut_logs_after: int | None = None
    """Log connections break after so many bytes, each; None: they do not."""


class ApiServer:
    """Serves a namespace on a port of this machine.

    Args:
        objects: That it serves.
        kubelet: Whose logs it serves.
        faults: That it has.

    Attributes:
        namespaces: Names of those that the cluster has; None: nobody may list them.
        local_queues: Names of Kueue's queues; None: there is no Kueue.
    """

    def __init__(self, objects: Objects, kubelet: Kubelet, faults: Faults) -> None:
        self.objects, self.kubelet, self.faults = objects, kubelet, faults
        self.namespaces: list[str] | None = ["default", "training"]
        self.local_queues: list[str] | None = None
        self.generation = 0
        server = self

        class Handler(_Handler):
            api = server

        self._http = _Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def cut_connections(self) -> None:
        """Break every answer that goes on."""
        with self.objects.lock:
            self.generation += 1
            self.objects.lock.notify_all()
        self._http.cut()

    def stop(self) -> None:
        """End, with all connections."""
        self.cut_connections()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._open: set[socket.socket] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients leave whenever they like."""

    def cut(self) -> None:
        """Break every connection."""
        for connection in list(self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    api: ApiServer
    protocol_version = "HTTP/1.1"
    wbufsize = 0

    def do_GET(self) -> None:
        self._serve(self._get)

    def do_POST(self) -> None:
        self._serve(self._post)

    def do_DELETE(self) -> None:
        self._serve(self._delete)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the name of its base
        """Nothing is printed."""

    # ------------------------------------------------------------------ any request
    def _serve(self, answer: Callable[[], Document | None]) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        self._body = json.loads(self.rfile.read(length)) if length else {}
        self._url = urlsplit(self.path)
        self._query = {name: values[-1] for name, values in parse_qs(self._url.query).items()}
        if self.api.faults.is_down:
            self.close_connection = True
            return
        try:
            self._misbehave()
            document = answer()
            if document is not None:
                self._send(200 if self.command != "POST" else 201, document)
        except Refused as refused:
            self._send(refused.status, refused.document)

    def _misbehave(self) -> None:
        for refusal in self.api.faults.refusals:
            if re.search(refusal[0], f"{self.command} {self.path}"):
                self.api.faults.refusals.remove(refusal)
                raise Refused(*refusal[1:])

    def _send(self, status: int, document: Document) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, chunks: Iterator[bytes], content_type: str) -> None:
        """Chunks as they come; without the last, empty one where the answer is to break."""
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for chunk in chunks:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            self.wfile.write(b"0\r\n\r\n")
        except (_Cut, OSError):
            self.close_connection = True

    # ------------------------------------------------------------------ reading
    def _get(self) -> Document | None:
        path = self._url.path.rstrip("/")
        if path == "/version":
            return {"major": "1", "minor": "34", "gitVersion": "v1.34.0-fake"}
        if path == "/api":
            return {"kind": "APIVersions", "versions": ["v1"]}
        if path == "/apis":
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": self._groups()}
        if path in _APIS:
            return self._resources(path)
        if path == "/api/v1/namespaces":
            return self._named("NamespaceList", self.api.namespaces, 403)
        if path.startswith("/apis/kueue.x-k8s.io/v1beta1/") and path.endswith("/localqueues"):
            return self._named("LocalQueueList", self.api.local_queues, 404)
        place = self._place()
        if place["below"] == "log":
            self._log(place["name"])
            return None
        if place["name"]:
            return self.api.objects.need(place["plural"], place["name"])
        keep = labelled(self._query.get("labelSelector", ""))
        with self.api.objects.lock:
            items = self.api.objects.all(place["plural"], keep)
            version = str(self.api.objects.version)
        kind = _APIS[place["api"]][place["plural"]]
        return {"kind": f"{kind}List", "apiVersion": "v1", "metadata": {"resourceVersion": version}, "items": items}

    def _named(self, kind: str, names: list[str] | None, status: int) -> Document:
        """Objects of which no more than the name counts; that status where there are none to see."""
        if names is None:
            raise Refused(status, "Forbidden" if status == 403 else "NotFound", f"no {kind} for you")
        return {"kind": kind, "metadata": {}, "items": [{"metadata": {"name": name}} for name in names]}

    def _resources(self, path: str) -> Document:
        verbs = ["create", "delete", "get", "list"]
        resources = [
            {"name": plural, "singularName": kind.lower(), "namespaced": True, "kind": kind, "verbs": verbs}
            for plural, kind in _APIS[path].items()
        ]
        return {"kind": "APIResourceList", "groupVersion": path.split("/", 2)[-1], "resources": resources}

    def _groups(self) -> list[Document]:
        found = []
        for path in _APIS:
            group, _, version = path.removeprefix("/apis/").rpartition("/")
            if path.startswith("/apis/"):
                told = {"groupVersion": f"{group}/{version}", "version": version}
                found.append({"name": group, "versions": [told], "preferredVersion": told})
        return found

    def _log(self, pod: str) -> None:
        document = self.api.objects.need("pods", pod)
        if document["spec"].get("nodeName") in self.api.kubelet.lost:
            raise Refused(500, "InternalError", "Get https://10.0.0.9:10250: dial tcp: i/o timeout")
        name = self._query["container"]
        container = self.api.kubelet.containers.get((pod, name))
        if container is None:
            message = f'container "{name}" in pod "{pod}" is waiting to start: ContainerCreating'
            raise Refused(400, "BadRequest", message)
        lines = container.log(follow=self._query.get("follow") in ("true", "True"))
        self._stream(self._cut(lines), "text/plain")

    def _cut(self, lines: Iterator[bytes]) -> Iterator[bytes]:
        left, generation = self.api.faults.cut_logs_after, self.api.generation
        for line in lines:
            if self.api.generation != generation:
                raise _Cut
            if left is not None and len(line) > left:
                if left:
                    yield line[:left]
                raise _Cut
            yield line
            left = None if left is None else left - len(line)

    # ------------------------------------------------------------------ writing
    def _post(self) -> Document:
        if self._url.path == "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews":
            return self._review()
        place = self._place()
        check(place["plural"], self._body)
        return self.api.objects.create(place["plural"], place["namespace"], self._body)

    def _review(self) -> Document:
        asked = self._body["spec"]["resourceAttributes"]
        what = "/".join(filter(None, (asked["resource"], asked.get("subresource"))))
        allowed = f"{asked['verb']} {what}" not in self.api.faults.forbidden
        return {**self._body, "status": {"allowed": allowed}}

    def _delete(self) -> Document:
        place = self._place()
        is_engine = not self._body  # kubectl says how it wants to delete in a body
        if is_engine and self._query.get("propagationPolicy") != "Foreground":
            raise Refused(422, "Invalid", "the engine has to delete in the foreground")
        found = self.api.objects.need(place["plural"], place["name"])
        grace_s = found["spec"].get("terminationGracePeriodSeconds", 30) if place["plural"] == "pods" else 0.0
        self.api.objects.delete(place["plural"], place["name"], grace_s=grace_s)
        return {"kind": "Status", "apiVersion": "v1", "status": "Success"}

    def _place(self) -> dict[str, str]:
        found = _PATH.fullmatch(self._url.path)
        if found is None or found["plural"] not in _APIS[found["api"]]:
            raise Refused(404, "NotFound", "the server could not find the requested resource")
        return found.groupdict()


class _Cut(Exception):
    """The answer breaks here."""
