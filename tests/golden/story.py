"""A service in this process, asked over REST one request after the other, and what it answered."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import httpx

from autotuner.api.main import create_app
from autotuner.core.cluster import LOCAL, SIMULATED
from autotuner.core.measurement import Measurement
from autotuner.core.trial import FailureKind, Outcome, TrialFailure
from autotuner.core.trial_spec import TrialSpec
from autotuner.launch.contract import TrialWatcher
from autotuner.launch.launchers import Launchers
from autotuner.launch.simulated import SimulatedLauncher
from autotuner.runs.clock import SystemClock
from autotuner.service.build import App, build
from autotuner.service.settings import Settings
from autotuner.store.sql import Store, memory_store
from tests.api.service import serve_asgi
from tests.fake_launcher import FakeLauncher, plain_measurement
from tests.golden.normal import Normal
from tests.patience import PATIENCE_S

_BEGINS_AT = 1_760_000_000.0

_BETWEEN_QUESTIONS_S = 60.0

_HEADERS = ("location", "content-type", "allow", "content-disposition")
"""Those that somebody reads."""


class StoryClock(SystemClock):
    """A minute goes by between questions, and none while something works: seeds of retunes depend on the time."""

    def __init__(self) -> None:
        self._at = _BEGINS_AT

    def pass_on(self) -> None:
        """Let the minute go by."""
        self._at += _BETWEEN_QUESTIONS_S

    def now(self) -> float:
        """Seconds since 1970, in the story."""
        return self._at


class Story:
    """Asks a service, and keeps what it answered by chapter.

    Attributes:
        chapters: Answers by chapter, in the order in which they were asked for.
        asked: Methods and paths as OpenAPI has them.
        examples: Of each of these a body and an answer that went well: the first of those that say most.
    """

    def __init__(self, http: httpx.Client, clock: StoryClock, new_app: Callable[[], App]) -> None:
        self.chapters: dict[str, list[dict[str, Any]]] = {}
        self.asked: set[tuple[str, str]] = set()
        self.examples: dict[tuple[str, str], dict[str, Any]] = {}
        self._http = http
        self._clock = clock
        self._new_app = new_app
        self._normal = Normal()

    def ask(self, chapter: str, method: str, path: str, body: Any = None, *, query: Any = None, **names: str) -> Any:
        """Ask, and keep the answer.

        Args:
            chapter: To which it belongs.
            method: GET, POST, PUT or DELETE.
            path: As OpenAPI has it, below ``/api/v1``.
            body: As JSON.
            query: Parameters behind the path.
            names: What stands in the braces of the path.

        Returns:
            The answer, unchanged.
        """
        self.asked.add((method, f"/api/v1{path}"))
        self._clock.pass_on()
        answer = self._http.request(method, f"/api/v1{path.format(**names)}", json=body, params=query)
        headers = {name: answer.headers[name] for name in _HEADERS if name in answer.headers}
        found = {"asked": f"{method} {path}", "status": answer.status_code} | self._normal.document(headers)
        is_json = "json" in answer.headers.get("content-type", "")
        if answer.is_success:
            self._exemplify(method, path, body, answer.json() if is_json else answer.text)
        found["body"] = self._normal.document(answer.json()) if is_json else self._normal.text(answer.text).split("\n")
        self.chapters.setdefault(chapter, []).append(found)
        return answer.json() if is_json else answer.text

    def _exemplify(self, method: str, path: str, body: Any, answer: Any) -> None:
        example = ({} if body is None else {"body": body}) | {"answer": answer}
        known = self.examples.setdefault((method, f"/api/v1{path}"), example)
        if _num_known(answer) > _num_known(known["answer"]):
            self.examples[method, f"/api/v1{path}"] = example

    def keep(self, chapter: str, what: str, found: Any) -> None:
        """Keep something else that the service said."""
        self.chapters.setdefault(chapter, []).append({"found": what} | self._normal.document({"body": found}))

    def metrics(self, chapter: str) -> None:
        """Keep the names and types of what Prometheus reads."""
        lines = self._http.get("/metrics").text.splitlines()
        found = sorted(line.removeprefix("# TYPE ") for line in lines if line.startswith("# TYPE autotuner"))
        self.keep(chapter, "metrics", found)

    def events(self, chapter: str, path: str, **names: str) -> None:
        """Keep the events of something that has ended."""
        self.asked.add(("GET", f"/api/v1{path}"))
        text = self._http.get(f"/api/v1{path.format(**names)}").text
        self._exemplify("GET", path, None, text)
        found = []
        for block in filter(str.strip, text.split("\n\n")):
            fields = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line)
            found.append({"kind": fields.get("event", ""), "data": json.loads(fields.get("data", "null"))})
        self.keep(chapter, f"events of {path}", found)

    def work(self, path: str, is_over: Callable[[Any], bool]) -> Any:
        """Let workers work until what is at the path is as wanted; they stop behind that."""
        app = self._new_app()
        app.background.start()
        try:
            ends = time.monotonic() + PATIENCE_S
            while not is_over(found := self._http.get(f"/api/v1{path}").json()):
                assert time.monotonic() < ends, found
                time.sleep(0.1)
            return found
        finally:
            app.background.stop()


def _num_known(answer: Any) -> int:
    """How many fields of an answer are not null."""
    return sum(value is not None for value in answer.values()) if isinstance(answer, dict) else 0


def _behaves(spec: TrialSpec) -> Measurement | TrialFailure:
    """What comes of a trial on `local`: large micro-batches end badly, and a higher learning rate learns faster."""
    endings = {4: FailureKind.OOM, 8: FailureKind.CRASH}
    if (kind := endings.get(spec.layout.micro_batch_size)) is not None:
        return TrialFailure(kind=kind, message=f"rank 1 ended: {kind.value}", rank=1, log_tail="the last line")
    found = plain_measurement(spec, step_time_s=0.5 + 0.1 * spec.layout.pipeline_parallel_degree)
    rate = spec.settings.learning_rate if spec.optimizer is None else spec.optimizer.learning_rate
    return replace(found, losses=tuple(6.0 / (1.0 + 100.0 * rate * step) for step in range(len(found.losses))))


class _Once(Launchers):
    """Runs a trial on ``local`` once, whatever its settings ask."""

    def run(self, spec: TrialSpec, watcher: TrialWatcher) -> Outcome:
        is_local = spec.cluster is None or spec.cluster.engine == LOCAL
        return self._by_engine[LOCAL].run(spec, watcher) if is_local else super().run(spec, watcher)


@contextmanager
def told_story() -> Iterator[Story]:
    """A story of a service on a store of its own."""
    store: Store = memory_store()
    clock = StoryClock()
    launcher = _Once({LOCAL: FakeLauncher(_behaves), SIMULATED: SimulatedLauncher()})

    def new_app(num_workers: int) -> App:
        settings = Settings(
            num_workers=num_workers,
            poll_s=0.1,
            starts_retunes=False,
            webhook_allow="127.0.0.0/8",
            public_url="https://tuner.example/",
        )
        return build(settings, store=store, launcher=launcher, clock=clock)

    with (
        serve_asgi(create_app(new_app(0))) as address,
        httpx.Client(base_url=address, timeout=PATIENCE_S) as http,
    ):
        yield Story(http, clock, lambda: new_app(1))
    launcher.close()
    store.close()
