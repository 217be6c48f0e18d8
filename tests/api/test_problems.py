from __future__ import annotations

from dataclasses import fields
from typing import Any

import httpx
import pytest
from fastapi import Request
from sqlalchemy import update

from autotuner.api.errors import answer_error
from autotuner.core.access import Caller, Scope
from autotuner.core.codec import to_plain
from autotuner.core.errors import StoreUnavailable
from autotuner.core.listed import Stored
from autotuner.core.model import TransformerSpec
from autotuner.core.named import Described
from autotuner.store.schema import memory_engine
from autotuner.store.sql import Store
from autotuner.store.tables import runs
from tests.api.bodies import CPU
from tests.api.service import app_on, serve
from tests.builders import tiny_model
from tests.patience import PATIENCE_S

UNKNOWN_IN_A_MODEL = "is not a known field (did you mean norm?); the fields are " + ", ".join(
    field.name for field in fields(TransformerSpec)
)

JSON = {"Content-Type": "application/json"}


def problem(answer: httpx.Response, status: int, kind: str) -> dict[str, Any]:
    """The problem document of an answer that must be of this kind."""
    assert answer.status_code == status, answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"
    document: dict[str, Any] = answer.json()
    assert document["type"] == f"urn:autotuner:problem:{kind}"
    assert document["status"] == status
    assert document["instance"] == answer.request.url.path
    assert document["title"]
    assert document["detail"]
    return document


def test_a_value_that_breaks_a_rule_names_field_value_rule_and_nearest(client: httpx.Client) -> None:
    model = CPU["model"] | {"num_kv_heads": 3}
    found = problem(client.post("/sweeps", json=CPU | {"model": model}), 422, "invalid-input")
    assert (found["field"], found["value"], found["nearest"]) == ("model.num_kv_heads", 3, 2)
    assert "divide num_heads (4)" in found["rule"]
    assert found["errors"] == [{name: found[name] for name in ("field", "value", "rule", "nearest")}]


@pytest.mark.parametrize("bad", ["\x1b]0;x\x07", "\n", "\u2028", "\u202e", "\x9b31m"])
def test_a_name_that_others_read_is_one_line_without_control_characters(client: httpx.Client, bad: str) -> None:
    for wrong in ({"name": f"a{bad}b"}, {"model": CPU["model"] | {"name": f"a{bad}b"}}):
        found = problem(client.post("/sweeps", json=CPU | wrong), 422, "invalid-input")
        assert found["field"].endswith("name")
        assert found["rule"] == "must be one line without control characters"
        assert found["nearest"].startswith("a ")
    gate = CPU | {"software": f"a{bad}b"}
    assert problem(client.post("/gates", json=gate), 422, "invalid-input")["field"] == "software"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ('{"seed": 1e999}', "seed"),
        ('{"seed": NaN}', "seed"),
        ('{"seed": 9223372036854775808}', "seed"),
        ('{"name": "a\\u0000b"}', "name"),
        ('{"name": "\\ud800"}', "name"),
        ('{"space": ' + "[" * 900 + "]" * 900 + "}", "space"),
        ('{"\\ud800": 1}', "body"),
        ("[]", "body"),
        ("null", "body"),
        ("7", "body"),
    ],
)
def test_json_text_that_a_database_cannot_store_is_refused(client: httpx.Client, body: str, field: str) -> None:
    found = problem(client.post("/sweeps", content=body, headers=JSON), 422, "invalid-input")
    assert field in {error["field"] for error in found["errors"]}


def test_every_rule_that_a_body_breaks_is_reported_at_once(client: httpx.Client) -> None:
    model = CPU["model"] | {"num_kv_heads": 3, "nrom": "rmsnorm"}
    wrong = {
        "model": model,
        "cluster": 7,
        "workload": {"seq_len": True},
        "space": {"recompute": ["ful"]},
        "seed": 2**40,
    }
    found = problem(client.post("/sweeps", json=wrong), 422, "invalid-input")
    assert {(error["field"], error["rule"], error["nearest"]) for error in found["errors"]} == {
        ("model.nrom", UNKNOWN_IN_A_MODEL, None),
        ("cluster", "must be a name or an object", None),
        ("workload.seq_len", "must be a whole number", None),
        ("workload.global_batch_size", "is required", None),
        ("space.recompute.0", "must be one of none, selective, full", "full"),
        ("seed", "must be 2147483647 or less", 2**31 - 1),
    }
    assert (found["field"], found["value"]) == ("model.nrom", "rmsnorm")
    assert "and 1 more" in found["detail"]


def test_a_description_is_held_to_its_own_rules_beside_the_others(client: httpx.Client) -> None:
    wrong = CPU | {"model": CPU["model"] | {"num_kv_heads": 3}, "seed": -1.5, "budget": {"prune_below": 2.0}}
    found = problem(client.post("/sweeps", json=wrong), 422, "invalid-input")
    assert {(error["field"], error["value"], error["nearest"]) for error in found["errors"]} == {
        ("model.num_kv_heads", 3, 2),
        ("seed", -1.5, None),
        ("budget.prune_below", 2.0, 1.0),
    }


def test_an_error_quotes_at_most_a_line_of_what_was_sent(client: httpx.Client) -> None:
    wrong = {"name": "a\0" + "x" * 9000, "space": {"micro_batch_size": ["y" * 1000] * 1000}, "z" * 200: 1}
    answer = client.post("/sweeps", json=CPU | wrong)
    found = problem(answer, 422, "invalid-input")
    assert len(found["errors"]) == 50
    assert len(found["detail"]) < 2000
    for error in found["errors"]:
        assert max(len(error["field"]), len(str(error["value"]))) <= 100


def test_a_name_that_does_not_exist_is_quoted_in_a_line(client: httpx.Client) -> None:
    found = problem(client.post("/sweeps", json=CPU | {"model": "x" * 9000}), 404, "not-found")
    assert len(found["detail"]) < 200


def test_a_config_is_held_to_the_bounds_of_our_own_fields(client: httpx.Client) -> None:
    sizes = {"num_hidden_layers": 10**12, "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128}
    found = problem(
        client.put("/models/huge", json={"model_type": "llama", "vocab_size": 256, **sizes}), 422, "invalid-input"
    )
    assert (found["field"], found["nearest"]) == ("num_layers", 2**31 - 1)


@pytest.mark.parametrize("number", ["0", "1e18", "1000000000000000000", "one"])
def test_a_page_number_has_bounds(address: str, number: str) -> None:
    answer = httpx.get(f"{address}/", params={"number": number}, timeout=PATIENCE_S)
    assert problem(answer, 422, "invalid-input")["field"] == "number"


def test_a_body_without_its_content_type_says_which_header_to_send(client: httpx.Client) -> None:
    found = problem(client.post("/sweeps", content=b"{}"), 422, "invalid-input")
    assert "Content-Type: application/json" in found["rule"]


@pytest.mark.parametrize("body", [b"{", b"{'a': 1}", b"\xff\xfe", b"[" * 100_000])
def test_a_body_that_is_no_json_is_a_bad_request(client: httpx.Client, body: bytes) -> None:
    problem(client.post("/sweeps", content=body, headers=JSON), 400, "malformed-json")


def test_every_bad_parameter_is_listed(client: httpx.Client) -> None:
    found = problem(client.get("/sweeps", params={"limit": 0, "offset": -1, "state": "done"}), 422, "invalid-input")
    assert {error["field"]: error["nearest"] for error in found["errors"]} == {"limit": 1, "offset": 0, "state": None}


def test_an_unknown_route_and_a_wrong_method_are_problems_too(client: httpx.Client) -> None:
    problem(client.get("/nothing"), 404, "not-found")
    refused = client.delete("/sweeps")
    problem(refused, 405, "method-not-allowed")
    assert refused.headers["Allow"] == "GET, POST"


def test_another_model_under_a_stored_name_is_a_conflict(client: httpx.Client) -> None:
    assert client.put("/models/tiny", json=to_plain(tiny_model())).status_code == 200
    problem(client.put("/models/tiny", json=to_plain(tiny_model(num_layers=8))), 409, "conflict")


class LostStore(Store):
    """A store whose database went away."""

    def check(self) -> str:
        raise StoreUnavailable("the database cannot be reached")


class BrokenStore(Store):
    """A store with a bug in it."""

    def __init__(self) -> None:
        super().__init__(memory_engine())
        self.descriptions.stored = self._fail  # type: ignore[method-assign]

    def _fail(self, cls: type[Described]) -> Stored[Described]:  # noqa: ARG002
        raise ZeroDivisionError("a secret of the inside")


def test_a_database_out_of_reach_is_unavailable_and_says_when_to_ask_again() -> None:
    with serve(app_on(LostStore(memory_engine()))) as address:
        answer = httpx.get(f"{address}/api/v1/ready", timeout=PATIENCE_S)
        problem(answer, 503, "store-unavailable")
        assert int(answer.headers["Retry-After"]) > 0
        assert httpx.get(f"{address}/api/v1/health", timeout=PATIENCE_S).status_code == 200


@pytest.mark.parametrize(
    ("caller", "is_told"),
    [(None, False), (Caller(name="anna", scope=Scope.RUN), False), (Caller(name="root", scope=Scope.ADMIN), True)],
)
def test_only_admins_see_the_address_of_the_database(caller: Caller | None, is_told: bool) -> None:
    state = {} if caller is None else {"caller": caller}
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/api/v1/ready",
        "query_string": b"",
        "headers": [],
        "server": ("a", 1),
    }
    answer = answer_error(Request(scope | {"state": state}), StoreUnavailable("connection to db.internal:5432 failed"))
    assert (b"db.internal" in answer.body) == is_told


def test_our_own_bug_is_answered_without_its_inside_and_with_an_id_to_look_for() -> None:
    with serve(app_on(BrokenStore())) as address:
        answer = httpx.get(f"{address}/api/v1/models", headers={"X-Request-ID": "look-for-me"}, timeout=PATIENCE_S)
        found = problem(answer, 500, "internal-error")
        assert "secret" not in answer.text
        assert "ZeroDivisionError" not in answer.text
        assert "look-for-me" in found["detail"]
        assert answer.headers["X-Request-ID"] == "look-for-me"


def test_a_stored_row_that_cannot_be_read_is_our_own_error_and_the_log_names_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    engine = memory_engine()
    with serve(app_on(Store(engine))) as address:
        sweep = httpx.post(f"{address}/api/v1/sweeps", json=CPU, timeout=PATIENCE_S).json()
        with engine.begin() as connection:
            connection.execute(update(runs).values(request='{"schema_version": 0}'))
        problem(httpx.get(f"{address}/api/v1/sweeps/{sweep['id']}", timeout=PATIENCE_S), 500, "internal-error")
    logged = capsys.readouterr().err
    assert sweep["id"] in logged
    assert "stored SweepRequest" in logged
    assert "schema_version" in logged


def test_every_answer_has_a_request_id_and_an_unsafe_one_is_replaced(client: httpx.Client) -> None:
    assert len(client.get("/health").headers["X-Request-ID"]) == 32
    assert client.get("/health", headers={"X-Request-ID": "ci-7"}).headers["X-Request-ID"] == "ci-7"
    assert len(client.get("/health", headers={"X-Request-ID": "two words"}).headers["X-Request-ID"]) == 32
