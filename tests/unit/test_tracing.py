from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx
import pytest
import structlog
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from autotuner.clock import SystemClock
from autotuner.launch.fake import FakeLauncher
from autotuner.logs import configure_logs
from autotuner.store.sql import memory_store
from autotuner.tracing import carried, exporting, traced_by, working_on
from bench.sweeping import sweep_worker
from tests.api.service import app_on, serve
from tests.builders import sweep_request
from tests.patience import PATIENCE_S


@pytest.fixture
def exporter() -> Iterator[InMemorySpanExporter]:
    """Of the spans of this process, as soon as they end."""
    kept, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    with traced_by(provider):
        yield kept
    provider.shutdown()


def told(span: ReadableSpan, name: str) -> object:
    return (span.attributes or {}).get(f"autotuner.{name}")


def test_a_sweep_is_a_trace_of_its_trials(exporter: InMemorySpanExporter) -> None:
    store = memory_store()
    sweep, _ = store.create_sweep(sweep_request(), now=1.0)
    sweep_worker(store, FakeLauncher(), SystemClock(), owner="worker-a", lease_s=30.0).run_once()
    *trials, whole = exporter.get_finished_spans()
    assert (whole.name, told(whole, "sweep_id"), told(whole, "worker")) == ("sweep.run", sweep.id, "worker-a")
    ran = [span for span in trials if span.name == "trial.run"]
    assert {told(span, "trial_id") for span in ran} == {trial.id for trial in store.list_trials(sweep.id)[0]}
    assert {told(span, "state") for span in ran} == {"complete"}
    assert {span.parent and span.parent.span_id for span in ran} == {whole.context and whole.context.span_id}
    store.close()


def test_a_request_is_a_span_by_its_route_with_the_id_that_its_caller_was_told(exporter: InMemorySpanExporter) -> None:
    store = memory_store()
    with serve(app_on(store)) as address:
        answer = httpx.get(f"{address}/api/v1/sweeps/sw-aaaaaaaaaa?secret=1", timeout=PATIENCE_S)
    (span,) = (span for span in exporter.get_finished_spans() if span.parent is None)
    assert span.name == "GET /api/v1/sweeps/{sweep_id}"
    assert told(span, "request_id") == answer.headers["X-Request-ID"]
    store.close()


def test_spans_go_where_the_variables_of_opentelemetry_say(monkeypatch: pytest.MonkeyPatch) -> None:
    posted: list[tuple[str, bytes]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append((self.path, gzip_or_plain(self.rfile.read(int(self.headers["Content-Length"])))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name that it has
            """Nothing."""

    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("OTEL_SERVICE_NAME", "tuner-of-team-a")
        with exporting("otlp"), working_on("sweep.run", sweep_id="sw-x"):
            pass
        server.shutdown()
        thread.join()
    ((path, body),) = posted
    assert path == "/v1/traces"
    assert b"sweep.run" in body
    assert b"sw-x" in body
    assert b"tuner-of-team-a" in body


def gzip_or_plain(body: bytes) -> bytes:
    return gzip.decompress(body) if body.startswith(b"\x1f\x8b") else body


def test_without_a_provider_nothing_is_traced_and_lines_have_their_ids_all_the_same(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_logs("info")
    with working_on("trial.run", trial_id="sw-x-0000") as span:
        structlog.get_logger().info("hello")
    assert not span.get_span_context().is_valid
    line = capsys.readouterr().err
    assert '"trial_id": "sw-x-0000"' in line
    assert "trace_id" not in line


def test_lines_of_a_thread_that_carries_the_work_name_its_sweep_its_trial_and_its_trace(
    exporter: InMemorySpanExporter, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logs("info")
    with working_on("sweep.run", sweep_id="sw-x"):
        thread = threading.Thread(target=carried(lambda: structlog.get_logger().info("hello")))
        thread.start()
        thread.join()
    (span,) = exporter.get_finished_spans()
    assert span.context is not None
    line = capsys.readouterr().err
    assert '"sweep_id": "sw-x"' in line
    assert f'"trace_id": "{span.context.trace_id:032x}"' in line
