from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest

from autotuner.launch.engines.engine import EngineUnavailable
from autotuner.launch.engines.kubernetes.api import Gone, Kind, KubernetesApi
from autotuner.launch.engines.kubernetes.watching import Watching

AGES_S = 30.0


class Kept:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def replaced(self, kind: Kind, documents: list[dict[str, Any]]) -> None:
        self.told.append(f"{kind}: {len(documents)}")

    def changed(self, kind: Kind, document: dict[str, Any]) -> None:
        if document["metadata"]["name"] == "bug":
            raise KeyError("a bug")
        self.told.append(f"{kind} {document['metadata']['name']} changed")

    def deleted(self, kind: Kind, document: dict[str, Any]) -> None:
        self.told.append(f"{kind} {document['metadata']['name']} deleted")


class Scripted:
    """An API whose watches are given one after the other; the last stays open until it is closed."""

    def __init__(self, *watches: list[bytes] | Exception) -> None:
        self._watches = list(watches)
        self.versions: list[str] = []
        self.num_lists = 0
        self.is_done, self._closed = threading.Event(), threading.Event()

    def list(self, kind: Kind, selector: str) -> tuple[list[dict[str, Any]], str]:
        assert (kind, selector) == ("Pod", "a=b")
        self.num_lists += 1
        return [], str(100 * self.num_lists)

    def watch(self, kind: Kind, selector: str, version: str) -> Scripted:
        assert (kind, selector) == ("Pod", "a=b")
        self.versions.append(version)
        if self._watches and isinstance(self._watches[0], Exception):
            raise cast("Exception", self._watches.pop(0))
        return self

    def __enter__(self) -> Scripted:
        return self

    def __exit__(self, *exception: object) -> None:
        return None

    def __iter__(self) -> Iterator[bytes]:
        if self._watches:
            yield from cast("list[bytes]", self._watches.pop(0))
        else:
            self.is_done.set()
            self._closed.wait(AGES_S)

    def close(self) -> None:
        self._closed.set()


def event(kind: str, name: str, version: int, **document: Any) -> bytes:
    told = {"metadata": {"name": name, "resourceVersion": str(version)}, **document}
    return json.dumps({"type": kind, "object": told}).encode() + b"\n"


def followed(*watches: list[bytes] | Exception) -> tuple[Scripted, list[str]]:
    """What was asked and told until the script is at its end."""
    api, kept = Scripted(*watches), Kept()
    watching = Watching(cast("KubernetesApi", api), "Pod", "a=b", kept)
    watching.start()
    assert api.is_done.wait(AGES_S)
    assert watching.failure == ""
    watching.stop()
    return api, kept.told


def test_changes_are_told_in_their_order_after_a_list() -> None:
    _, told = followed([event("ADDED", "p", 101), event("MODIFIED", "p", 102), event("DELETED", "p", 103)])
    assert told == ["Pod: 0", "Pod p changed", "Pod p changed", "Pod p deleted"]


def test_a_watch_that_ends_is_opened_again_at_the_last_version() -> None:
    api, _ = followed([event("ADDED", "p", 101), event("BOOKMARK", "", 107)], [])
    assert api.versions == ["100", "107", "107"]
    assert api.num_lists == 1


def test_an_event_that_is_torn_comes_with_the_next_watch() -> None:
    api, told = followed([event("ADDED", "p", 101), event("ADDED", "q", 102)[:40]], [event("ADDED", "q", 102)])
    assert api.versions == ["100", "101", "102"]
    assert told == ["Pod: 0", "Pod p changed", "Pod q changed"]


@pytest.mark.parametrize(
    "too_old", [[event("ERROR", "", 0, code=410, message="too old resource version")], Gone("410")]
)
def test_a_version_that_is_too_old_begins_with_a_list(too_old: list[bytes] | Exception) -> None:
    api, told = followed(too_old)
    assert api.versions == ["100", "200"]
    assert told == ["Pod: 0", "Pod: 0"]


@pytest.mark.parametrize(
    "trouble", [[event("ERROR", "", 0, code=500, message="etcd is away")], EngineUnavailable("no route to host")]
)
def test_other_trouble_is_waited_out_where_the_watch_was(trouble: list[bytes] | Exception) -> None:
    api, _ = followed([event("ADDED", "p", 101)], trouble)
    assert api.versions == ["100", "101", "101"]
    assert api.num_lists == 1


def test_an_object_that_nobody_can_read_begins_with_a_list_and_ends_no_thread() -> None:
    api, _ = followed([event("ADDED", "bug", 101)])
    assert api.num_lists == 2


def test_a_cluster_that_never_answers_is_told() -> None:
    class Silent(Scripted):
        def list(self, kind: Kind, selector: str) -> tuple[list[dict[str, Any]], str]:
            del kind, selector
            self.is_done.set()
            raise EngineUnavailable("connection refused")

    api = Silent()
    watching = Watching(cast("KubernetesApi", api), "Pod", "a=b", Kept())
    watching.start()
    assert api.is_done.wait(AGES_S)
    watching.stop()
    assert watching.failure == "connection refused"
    assert not watching.has_listed.is_set()
