"""Everything that a question can say can be said on the command line, on its page, in REST and in Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, get_type_hints

import httpx
import pytest
import typer

from api.dashboard.forms import Question
from api.dashboard.pages.questions import PHASES, PLAN, PREDICT
from api.dashboard.sweep_form import INPUTS
from api.openapi import examples
from autotuner.cli.main import app
from autotuner.core.cluster_check import CheckRequest
from autotuner.core.documents import GivenFields
from autotuner.core.requests import ExplanationRequest, ExportRequest, LayersRequest, PhasesRequest, PredictionRequest
from autotuner.core.sweep_requests import (
    Adoption,
    BudgetChange,
    GateCreate,
    OptimizerStudyCreate,
    RetuneCreate,
    SweepClone,
    SweepCreate,
)
from autotuner.core.text import inputs_of
from autotuner.core.value import mark_of
from autotuner.remote import Remote
from autotuner.search.planning.request import PlanRequest

COMMANDS: Any = typer.main.get_group(app).commands
ASKED: Mapping[str, tuple[type[Any], Callable[..., Any]]] = {
    "predict": (PredictionRequest, Remote.predict),
    "explain": (ExplanationRequest, Remote.explain_layout),
    "phases": (PhasesRequest, Remote.plan_job_phases),
    "layers": (LayersRequest, Remote.report_layers),
    "plan": (PlanRequest, Remote.create_plan),
    "export": (ExportRequest, Remote.export_layout),
    "sweep": (SweepCreate, Remote.create_sweep),
    "clone": (SweepClone, Remote.clone_sweep),
    "extend": (BudgetChange, Remote.change_budget),
    "gate": (GateCreate, Remote.create_gate),
    "retune add": (RetuneCreate, Remote.create_retune),
    "retune adopt": (Adoption, Remote.adopt_layout),
    "optimizer tune": (OptimizerStudyCreate, Remote.create_optimizer_study),
    "cluster check": (CheckRequest, Remote.create_check),
}
PAGES: Mapping[str, Question[Any, Any]] = {"predict": PREDICT, "phases": PHASES, "plan": PLAN}


def command(name: str) -> Any:
    found = COMMANDS
    for word in name.split():
        found = found[word] if isinstance(found, dict) else found.commands[word]
    return found


def paths_of(cls: type[Any], *above: str) -> Iterator[tuple[str, ...]]:
    """Every field of a request, and of the values in it that have a field each."""
    hints = get_type_hints(cls)
    for field in fields(cls):
        yield (*above, field.name)
        made = MISSING if field.default_factory is MISSING else field.default_factory()
        given = mark_of(get_type_hints(cls, include_extras=True)[field.name], GivenFields)
        if given:
            yield from paths_of(given.cls, *above, field.name)
        elif is_dataclass(made) or (field.default is MISSING and made is MISSING and is_dataclass(hints[field.name])):
            yield from paths_of(hints[field.name], *above, field.name)


@pytest.mark.parametrize("name", ASKED)
def test_every_field_of_a_request_has_a_flag_and_its_client_takes_the_request(name: str) -> None:
    request, remote = ASKED[name]
    inputs = inputs_of(request)
    said = {option for parameter in command(name).params for option in parameter.opts}
    assert [one for one in inputs if not said & {one.flag, one.name}] == []  # some are arguments
    for path in paths_of(request):
        assert any(one.path[: len(path)] == path or path[: len(one.path)] == one.path for one in inputs), path
    assert request in get_type_hints(remote).values()


@pytest.mark.parametrize("name", PAGES)
def test_every_field_of_a_request_has_an_input_on_its_page(browser: httpx.Client, name: str) -> None:
    assert PAGES[name].request is ASKED[name][0]
    page = browser.get(f"/{name}?model=llama-9").text  # which asks for no computation
    for one in inputs_of(PAGES[name].request):
        assert f'id="{one.name}" name="{one.name}"' in page, one.name
        assert f'for="{one.name}"' in page


def test_every_field_of_a_sweep_has_an_input_on_its_page(browser: httpx.Client) -> None:
    page = browser.get("/new?model=llama-9").text
    for one in inputs_of(SweepCreate, has_all=True):
        assert f'name="{one.name}' in page, one.name  # of a space there is one for each axis
    for path in paths_of(SweepCreate):
        assert any(one.path[: len(path)] == path or path[: len(one.path)] == one.path for one in INPUTS), path


@pytest.mark.parametrize("name", ASKED)
def test_inputs_of_a_request_have_names_of_their_own(name: str) -> None:
    names = [one.name for one in inputs_of(ASKED[name][0])]
    assert len(set(names)) == len(names)


def test_what_is_wrong_is_said_at_once_each_beside_its_input_with_the_value_and_the_nearest(
    browser: httpx.Client,
) -> None:
    page = browser.get("/plan?model=llama-3-8b&tokens=1T&deadline=20&seq_len=8192.5&prices=h100=cheap").text
    assert "&#39;20&#39;: must be a number of hours, days or weeks; nearest: 20d" in page
    assert "&#39;8192.5&#39;: must be a whole number of tokens" in page
    for name in ("deadline", "seq_len", "price"):
        assert f'aria-describedby="wrong-{name}"' in page
    assert 'id="deadline" name="deadline" value="20" aria-invalid="true" aria-describedby="wrong-deadline"' in page


@pytest.mark.parametrize(
    ("query", "name"), [("accelerators=h10", "accelerators"), ("accelerators=h100&sizes=63", "sizes")]
)
def test_what_a_plan_refuses_stands_beside_the_input_that_it_is_about(
    browser: httpx.Client, query: str, name: str
) -> None:
    page = browser.get(f"/plan?model=llama-3-8b&tokens=1T&{query}").text
    assert f'id="wrong-{name}"' in page


def test_a_form_reads_no_file_of_the_service(browser: httpx.Client) -> None:
    page = browser.get("/predict?model=/etc/hostname&cluster=h100:8&layout=fsdp8&space=/etc/passwd").text
    assert "must be JSON" in page
    assert "root:" not in page


def test_the_examples_of_questions_are_known() -> None:
    assert {"predict", "create_plan", "plan_job_phases", "report_layers"} <= set(examples())
