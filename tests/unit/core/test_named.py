from __future__ import annotations

import importlib
import subprocess
import sys
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any, get_args, get_type_hints

import pytest
from pydantic import TypeAdapter

from autotuner.catalog.software import load_stack
from autotuner.core import documents
from autotuner.core.choices import ExportFormat
from autotuner.core.cluster import Cluster
from autotuner.core.codec import to_plain
from autotuner.core.documents import Document, Named
from autotuner.core.errors import InvalidInput, NotFound
from autotuner.core.model import TransformerSpec
from autotuner.core.named import named_by, names_in, resolve
from autotuner.core.requests import PredictionRequest
from autotuner.core.stack import Stack
from autotuner.core.sweep_requests import SweepCreate
from autotuner.core.trial_spec import Trainer
from autotuner.door import MAX_WORLD_SIZE, Autotuner
from tests.builders import cpu_cluster, tiny_model

THINGS: dict[Any, Any] = {
    TransformerSpec: tiny_model(),
    Cluster: cpu_cluster(),
    Stack: load_stack("torch"),
    Trainer: Trainer(name="ours", format=ExportFormat.ARGUMENTS),
}

REQUIRED: dict[str, Any] = {
    "workload": {"seq_len": 128, "global_batch_size": 8},
    "layout": {},
    "num_tokens": 1e9,
    "phases": [{"name": "all", "token_share": 1.0}],
    "goal": {"num_tokens": 1e9},
    "files": ["text"],
    "target_loss": 2.0,
    "name": "nightly",
    "cron": "0 3 * * *",
    "format": "torchtitan",
    "step_time_s": 1.0,
}


def marks(hint: Any) -> list[Any]:
    """Every ``Named`` in a type, however deep, as the type of what is named."""
    if (named := named_by(hint)) is not None:
        return [named]
    inside = [mark for inner in get_args(hint) for mark in marks(inner)]
    if isinstance(hint, type) and is_dataclass(hint):
        inside += [mark for inner in get_type_hints(hint, include_extras=True).values() for mark in marks(inner)]
    return inside


def written(hint: Any) -> Any:
    """A document of that type with a name in every ``Named`` field."""
    if named_by(hint) is not None:
        return "name"
    if isinstance(hint, type) and is_dataclass(hint):
        hints = get_type_hints(hint, include_extras=True)
        required = {field.name for field in fields(hint) if field.default is field.default_factory is MISSING}
        own = {name: written(inner) for name, inner in hints.items() if marks(inner)}
        return {name: REQUIRED[name] for name in REQUIRED if name in hints and name in required | {"step_time_s"}} | own
    inner = next(each for each in get_args(hint) if marks(each))
    return [written(inner)] if hint.__origin__ is tuple else written(inner)


MODULES = (
    "autotuner.core.requests",
    "autotuner.core.sweep_requests",
    "autotuner.search.planning.request",
)
REQUESTS = [
    cls
    for name in MODULES
    for cls in vars(importlib.import_module(name)).values()
    if is_dataclass(cls) and getattr(cls, "__module__", "") == name and marks(cls)
]


@pytest.mark.parametrize("cls", REQUESTS)
def test_a_name_in_every_field_that_takes_one_is_resolved(cls: type[Any]) -> None:
    request = documents.read(cls, written(cls))
    assert sorted(map(str, marks(cls))) == sorted(str(kind) for kind, _ in names_in(request))
    assert names_in(resolve(request, lambda kind, given, _: THINGS[kind])) == ()


def test_requests_that_take_names_are_many() -> None:
    assert len(REQUESTS) >= 12


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A sample."""

    model: Named[TransformerSpec]


def test_a_name_may_stand_in_the_place_of_a_thing_and_of_the_fields_that_the_catalog_knows() -> None:
    assert documents.read(Sample, {"model": "llama"}).model == "llama"
    assert documents.read(Sample, {"model": to_plain(tiny_model())}).model == tiny_model()
    changed = documents.read(Sample, {"model": {"base": "llama-3-8b", "num_layers": 16}}).model
    assert isinstance(changed, TransformerSpec)
    assert changed.num_layers == 16
    name, thing = TypeAdapter(Document[Sample]).json_schema()["properties"]["model"]["oneOf"]
    assert name["type"] == "string"
    assert [each["title"] for each in thing["anyOf"] if "title" in each] == ["TransformerSpec in short"]


def test_what_is_refused_of_a_request_inside_another_has_its_path() -> None:
    runs = [{"layout": {}, "step_time_s": 1.0, "cluster": f"h100:{2 * MAX_WORLD_SIZE}"}]
    body = written(PredictionRequest) | {"model": "llama-3-8b", "cluster": "h100:8", "measured": runs}
    with pytest.raises(InvalidInput) as refused:
        Autotuner().resolve(documents.read(PredictionRequest, body | {"stack": "torch"}))
    assert refused.value.field == "measured.0.cluster"


def test_the_door_brings_the_short_forms_of_the_catalog_and_no_exporter() -> None:
    script = (
        "import sys, autotuner.door; from autotuner.core import documents, requests; "
        "documents._validator(requests.PredictionRequest, is_own=False); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert {"autotuner.export.formats", "fastapi", "sqlalchemy"}.isdisjoint(done.stdout.split())


def test_a_door_without_a_service_knows_no_trainer() -> None:
    body = written(SweepCreate) | {"model": "llama-3-8b", "cluster": "h100:8", "measured": [], "trainer": "x"}
    with pytest.raises(NotFound, match="trainer"):
        Autotuner().resolve(documents.read(SweepCreate, body | {"trial_cluster": None}))
