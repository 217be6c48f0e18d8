"""Keeps a copy of objects of the cluster up to date, by a list and a watch."""

from __future__ import annotations

import json
import threading
from typing import Any, Protocol

import structlog

from autotuner.launch.engines.engine import EngineRefused, EngineUnavailable
from autotuner.launch.engines.kubernetes.api import Gone, Kind, KubernetesApi, Stream

_FIRST_RETRY_S = 0.5
_LAST_RETRY_S = 15.0

_log = structlog.get_logger(__name__)


class Copy(Protocol):
    """Who is told of objects."""

    def replaced(self, kind: Kind, documents: list[dict[str, Any]]) -> None:
        """These are all that there are now."""
        ...

    def changed(self, kind: Kind, document: dict[str, Any]) -> None:
        """That one is new, or another than it was."""
        ...

    def deleted(self, kind: Kind, document: dict[str, Any]) -> None:
        """That one is gone; this is how it was last."""
        ...


class Watching:
    """A thread that lists all objects of a kind once, then hears of each change.

    A watch that ends is opened again at the version it had reached; where the cluster has forgotten that one (410
    Gone), all is listed again.

    Args:
        copy: Told from this thread.

    Attributes:
        has_listed: Set once the copy holds all objects.
        failure: Why the copy may be out of date; empty while it is not.
    """

    def __init__(self, api: KubernetesApi, kind: Kind, selector: str, copy: Copy) -> None:
        self._api = api
        self._kind = kind
        self._selector = selector
        self._copy = copy
        self._version = ""
        self._stopped = threading.Event()
        self._stream: Stream | None = None
        self._thread = threading.Thread(target=self._run, name=f"watch-{kind}", daemon=True)
        self.has_listed = threading.Event()
        self.failure = ""

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for it."""
        self._stopped.set()
        if self._stream is not None:
            self._stream.close()
        self._thread.join()

    def _run(self) -> None:
        retry_s = _FIRST_RETRY_S
        while not self._stopped.is_set():
            try:
                if self._version:
                    self._follow()
                else:
                    self._list()
                self.failure, retry_s = "", _FIRST_RETRY_S
            except Gone:
                self._version = ""
            except Exception as error:  # the thread must go on, and those who ask hear of it
                if not isinstance(error, (EngineUnavailable, EngineRefused)):
                    self._version = ""
                    _log.exception("kubernetes.watch_failed", kind=self._kind)
                self.failure = f"{error}" or repr(error)
                self._stopped.wait(retry_s)
                retry_s = min(2 * retry_s, _LAST_RETRY_S)

    def _list(self) -> None:
        documents, version = self._api.list(self._kind, self._selector)
        self._copy.replaced(self._kind, documents)
        self._version = version
        self.has_listed.set()

    def _follow(self) -> None:
        """Hear of what changes until the watch ends."""
        with self._api.watch(self._kind, self._selector, self._version) as self._stream:
            self.failure = ""
            for line in self._stream if not self._stopped.is_set() else ():
                if not line.endswith(b"\n"):
                    return  # torn in the middle of an event, which the next watch begins with
                self._version = self._heard(json.loads(line))

    def _heard(self, event: dict[str, Any]) -> str:
        """The version after that event."""
        document = event["object"]
        match event["type"]:
            case "ERROR":
                told = f"Kubernetes ended the watch: {document.get('message')}"
                raise Gone(told) if document.get("code") == 410 else EngineUnavailable(told)
            case "BOOKMARK":
                pass
            case "DELETED":
                self._copy.deleted(self._kind, document)
            case _:
                self._copy.changed(self._kind, document)
        return str(document["metadata"]["resourceVersion"])
