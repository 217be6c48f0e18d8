from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from autotuner.api.dashboard.elsewhere import elsewhere
from autotuner.api.dashboard.sweep_form import Form
from autotuner.cli import main
from autotuner.core.access import Scope
from autotuner.core.sweep import SweepRequest
from autotuner.service.build import App
from autotuner.store.sql import memory_store
from tests.api.access import People
from tests.api.dashboard.test_sweep_form import REQUESTS, form
from tests.api.service import app_on, serve

CONFIG = {
    "model_type": "llama",
    "_name_or_path": "ours/tiny",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "vocab_size": 256,
    "max_position_embeddings": 128,
}


@dataclass(frozen=True, kw_only=True)
class Service:
    """A service that asks for tokens, and what sends requests to it."""

    app: App
    address: str
    folder: Path

    def asked(self, sweep_id: str) -> SweepRequest:
        return self.app.store.get_sweep(sweep_id).request

    def by_form(self, given: Form) -> SweepRequest:
        fields = {name: list(texts) for name, texts in given.values.items()}
        answer = httpx.post(f"{self.address}/new", data=fields, headers=self.headers, timeout=60)
        assert answer.status_code == 303, answer.text
        return self.asked(answer.headers["location"].rpartition("/")[2])

    def by_curl(self, text: str) -> SweepRequest:
        ran = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=True, env=self.environment)
        return self.asked(json.loads(ran.stdout)["id"])

    def by_python(self, text: str, capture: pytest.CaptureFixture[str]) -> SweepRequest:
        exec(compile(text, "said.py", "exec"), {})  # it is what the page says to run
        return self.asked(capture.readouterr().out.strip())

    def by_command(self, text: str, capture: pytest.CaptureFixture[str]) -> SweepRequest:
        """Run by a shell that has our command line as a function which only says its arguments."""
        shell = f"cd {self.folder}\nautotuner() {{ printf '%s\\0' \"$@\"; }}\n{text}"
        ran = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=True)
        with contextlib.chdir(self.folder), pytest.raises(SystemExit) as ended:
            main(["sweep", "--json", *ran.stdout.split("\0")[1:-1]])
        output, error = capture.readouterr()
        assert ended.value.code == 0, error
        return self.asked(json.loads(output)["id"])

    @property
    def environment(self) -> dict[str, str]:
        return {"PATH": "/usr/bin:/bin", "AUTOTUNER_TOKEN": self.headers["Authorization"].split()[1]}

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {People(app=self.app, address=self.address).token(Scope.RUN)}"}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    app = app_on(memory_store(), login="tokens")
    with serve(app) as address:
        yield Service(app=app, address=address, folder=tmp_path_factory.mktemp("said"))


FORMS: dict[str, Any] = {
    "by name": lambda app: form(
        ("name", "it's 30 %"), ("space.recompute", "all"), ("minutes", "0.1"), ("min_gain", "2%"), ("runs", "2")
    ),
    "a pasted config": lambda app: form(
        ("model.from", "described"), ("model.document", json.dumps(CONFIG)), ("cluster.engine", "simulated/plain")
    ),
    "links that fail": lambda app: form(
        ("link_health", "2_3; 0.06; 200mbit\nintra_node; 0.001"),
        ("fault_trace", "7; 2_3; 0.06\n30; 2_3; dead"),
        ("fault_steps", "45"),
        ("cluster.engine", "simulated/plain"),
    ),
    "sequences that differ": lambda app: form(
        ("seq_len", "512"), ("lengths", "1-128:6, 512:3"), ("cluster.engine", "simulated/plain")
    ),
    "a front": lambda app: form(
        ("objective", "tokens_per_s"),
        ("profile", "mfu=2, tokens_per_joule"),
        ("front", "mfu, simplicity"),
        ("cluster.engine", "simulated/plain"),
    ),
    "a clone": lambda app: Form.of_request(REQUESTS["everything said"], app),
}


@pytest.mark.parametrize("name", FORMS)
def test_form_curl_python_and_command_ask_for_the_same_sweep(
    service: Service, name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = FORMS[name](service.app)
    blocks: Any = elsewhere(given.request_texts(), given.document(), service.address, asks=True).blocks
    curl, python, command = (block.text for block in blocks)
    monkeypatch.setenv("AUTOTUNER_TOKEN", service.environment["AUTOTUNER_TOKEN"])
    wanted = service.by_form(given)
    assert service.by_curl(curl) == wanted
    assert service.by_python(python, capsys) == wanted
    assert service.by_command(command, capsys) == wanted
