from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from autotuner.core.access import Caller, Scope
from autotuner.core.run import RunState
from autotuner.store.sql import memory_store
from tests.api.access import People, bearing
from tests.api.service import NOW, app_on, serve
from tests.builders import sweep_request
from tests.patience import PATIENCE_S

PAGE = {"Accept": "text/html"}


@pytest.fixture(scope="module")
def people() -> Iterator[People]:
    app = app_on(memory_store(), login="tokens")
    with serve(app) as address:
        yield People(app=app, address=address)


def asked_by(people: People, name: str) -> str:
    """Id of a queued sweep of that caller."""
    caller = Caller(name=name, scope=Scope.RUN)
    return people.app.store.create_sweep(sweep_request(), now=NOW, caller=caller)[0].id


def post(people: People, path: str, *, name: str, scope: Scope = Scope.RUN) -> httpx.Response:
    headers = bearing(people.token(scope, name)) | PAGE
    return httpx.post(f"{people.address}{path}", headers=headers, data={"num_trials": "7"}, timeout=60)


@pytest.mark.parametrize(
    ("action", "state"),
    [("pause", RunState.PAUSED), ("resume", RunState.QUEUED), ("cancel", RunState.CANCELLED)],
)
def test_a_form_changes_a_sweep_and_leads_back_to_it(people: People, action: str, state: RunState) -> None:
    sweep_id = asked_by(people, "ada")
    answer = post(people, f"/sweeps/{sweep_id}/{action}", name="ada")
    assert (answer.status_code, answer.headers["Location"]) == (303, f"/sweeps/{sweep_id}")
    assert people.app.store.get_sweep(sweep_id).state is state


def test_what_cannot_be_done_is_said_on_the_page(people: People) -> None:
    sweep_id = asked_by(people, "ada")
    people.app.store.request_cancel(sweep_id, now=NOW)
    answer = post(people, f"/sweeps/{sweep_id}/pause", name="ada")
    assert answer.status_code == 409
    assert 'role="alert"' in answer.text


@pytest.mark.parametrize("action", ["pause", "resume", "cancel", "budget"])
@pytest.mark.parametrize(("name", "scope"), [("bob", Scope.RUN), ("ada", Scope.READ)])
def test_nobody_but_its_owner_and_admins_changes_a_sweep(people: People, action: str, name: str, scope: Scope) -> None:
    sweep_id = asked_by(people, "ada")
    assert post(people, f"/sweeps/{sweep_id}/{action}", name=name, scope=scope).status_code == 403
    assert people.app.store.get_sweep(sweep_id).state is RunState.QUEUED


def test_who_may_not_change_it_reads_who_may_instead_of_buttons(people: People) -> None:
    sweep_id = asked_by(people, "ada")
    pages = {
        name: httpx.get(
            f"{people.address}/sweeps/{sweep_id}", headers=bearing(people.token(scope, name)) | PAGE, timeout=PATIENCE_S
        ).text
        for name, scope in (("ada", Scope.RUN), ("bob", Scope.RUN))
    }
    assert f'action="/sweeps/{sweep_id}/pause"' in pages["ada"]
    assert f'action="/sweeps/{sweep_id}/' not in pages["bob"]
    assert "Ada, who asked for it, and admins may" in pages["bob"]
