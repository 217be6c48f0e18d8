from __future__ import annotations

import gzip
import hashlib
import os
import platform
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib import metadata
from pathlib import Path

import httpx
import pytest
import structlog
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from autotuner.core.errors import InvalidInput
from autotuner.host.machine_facts import (
    driver_version,
    hardware_facts,
    host_hash,
    is_this_host,
    settings_of_libraries,
    software_facts,
    system_facts,
)
from autotuner.runs.clock import SystemClock
from autotuner.runs.tracing import carried, traced_by, working_on
from autotuner.service.networks import household, is_within, read_networks
from autotuner.service.observing import configure_logs, exporting
from autotuner.store.sql import memory_store
from tests.api.service import app_on, serve
from tests.builders import sweep_request
from tests.fake_launcher import FakeLauncher, sweep_worker
from tests.patience import PATIENCE_S


# ---------------------------------------------------------------- Networks as an operator names them
def test_networks_are_named_with_commas_and_spaces_and_what_is_none_is_refused_in_short() -> None:
    networks = read_networks(" 10.0.0.0/8, ::1 ,", "AUTOTUNER_PROXY_NETWORKS")
    assert [str(one) for one in networks] == ["10.0.0.0/8", "::1/128"]
    assert read_networks("", "AUTOTUNER_PROXY_NETWORKS") == ()
    with pytest.raises(InvalidInput) as caught:
        read_networks("[" * 5_000, "AUTOTUNER_PROXY_NETWORKS")
    assert len(str(caught.value)) < 500
    with pytest.raises(InvalidInput, match="AUTOTUNER_PROXY_NETWORKS"):
        read_networks("10.0.0.0/8, proxy", "AUTOTUNER_PROXY_NETWORKS")


@pytest.mark.parametrize(
    ("address", "held"),
    [("10.1.2.3", True), ("::ffff:10.1.2.3", True), ("11.0.0.1", False), ("::1", False), ("", False), ("local", False)],
)
def test_an_address_is_held_by_a_network_in_whichever_clothes(address: str, held: bool) -> None:
    assert is_within(address, read_networks("10.0.0.0/8", "AUTOTUNER_PROXY_NETWORKS")) == held


def test_a_household_has_one_address_of_ipv4_and_64_bits_of_ipv6() -> None:
    assert household("192.0.2.7") == household("::ffff:192.0.2.7") == "192.0.2.7"
    assert household("2001:db8::1") == household("2001:db8::ffff:1") != household("2001:db8:0:1::1")
    assert household("testclient") == "testclient"


# ---------------------------------------------------------------- tracing
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


# ---------------------------------------------------------------- machine
def test_facts_are_of_what_is_installed_and_those_that_a_machine_does_not_tell_are_left_out() -> None:
    facts = software_facts()
    assert facts["python"] == platform.python_version()
    assert facts["torch"] == metadata.version("torch")
    assert facts["kernel"] == os.uname().release
    assert system_facts().keys() < software_facts().keys()
    assert not system_facts().keys() & {"python", "torch"}
    assert "" not in {**software_facts(), **hardware_facts()}.values()


def test_an_image_is_reported_as_its_operator_says_or_without_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNER_CONTAINER_IMAGE", "registry/train:2026-11")
    assert system_facts()["container_image"] == "registry/train:2026-11"
    monkeypatch.delenv("AUTOTUNER_CONTAINER_IMAGE", raising=False)
    monkeypatch.setenv("APPTAINER_CONTAINER", "/home/somebody/train.sif")
    assert system_facts()["container_image"] == "train.sif"


def test_the_machine_is_named_by_a_hash_that_a_list_of_names_does_not_tell() -> None:
    assert hardware_facts()["host"] == host_hash()
    assert socket.gethostname() not in hardware_facts().values()
    unsalted = hashlib.sha256(socket.gethostname().encode()).hexdigest()
    assert host_hash() != unsalted[:12]
    assert is_this_host(host_hash())
    assert is_this_host(unsalted[:12])  # what earlier releases stored
    assert not is_this_host(hashlib.sha256(b"another").hexdigest()[:12])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NCCL_MY_NOTES", "hunter2"),
        ("TORCH_WANDB", "hunter2"),
        ("TORCHINDUCTOR_CACHE_DIR", "somewhere"),
        ("CUDA_HOME", "somewhere"),
        ("PATH", "somewhere"),
        ("SECRET", "x"),
        ("TORCH_HUB_TOKEN", "x"),
        ("NCCL_COMM_ID", "10.0.0.1:5000"),
        ("UCX_LOG_LEVEL", "http://user:password@host"),
    ],
)
def test_unlisted_attributes_and_urls_are_not_recorded(name: str, value: str) -> None:
    assert settings_of_libraries({name: value, "NCCL_DEBUG": "INFO"}) == {"NCCL_DEBUG": "INFO"}


def test_an_operator_names_what_else_is_recorded_and_long_values_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNER_ALSO_RECORDED", "PACE,TURN")
    assert settings_of_libraries({"PACE": "2", "TOKEN": "x"}) == {"PACE": "2"}
    assert settings_of_libraries({"NCCL_DEBUG": "x" * 1000}) == {"NCCL_DEBUG": "x" * 200}


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("sys/module/nvidia/version", "570.133.20\n"),
        ("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.133.20  Sun Mar 30 2025\n"),
        (
            "proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.133.20  Release Build  (dvs-builder)\n",
        ),
    ],
)
def test_the_driver_is_the_one_whose_module_is_loaded(file: str, text: str, tmp_path: Path) -> None:
    assert driver_version(tmp_path) == ""
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(text)
    assert driver_version(tmp_path) == "570.133.20"
