from __future__ import annotations

import pickle
import signal
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from enum import property as enum_property
from math import isnan
from typing import Annotated, Any, get_type_hints

import pytest
from pydantic import Field, TypeAdapter, ValidationError

import autotuner.catalog.named  # noqa: F401  # it knows the short forms of models and clusters
from autotuner.core import documents
from autotuner.core.choices import Recompute
from autotuner.core.cluster import Cluster
from autotuner.core.codec import to_plain
from autotuner.core.documents import Document, GivenFields, Named
from autotuner.core.errors import InvalidDocument
from autotuner.core.layout import Layout
from autotuner.core.measurement import Measurement
from autotuner.core.model import TransformerSpec
from autotuner.core.requests import ExplanationRequest, PredictionRequest
from autotuner.core.signals import terminable
from autotuner.core.space import SearchSpace
from autotuner.core.sweep import SweepRequest
from autotuner.core.sweep_requests import SweepCreate
from autotuner.core.workload import Workload
from tests.builders import cpu_cluster, measurement, sweep_request


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A sample."""

    size: int
    memory_bytes: int = 1
    rate_per_s: float = 1.0
    recompute: tuple[Recompute, ...] = (Recompute.NONE,)
    layout: Layout = field(default_factory=Layout)
    model: Named[TransformerSpec] = ""
    space: Annotated[dict[str, Any], GivenFields(SearchSpace)] = field(default_factory=dict)


SAMPLE: TypeAdapter[Sample] = TypeAdapter(Document[Sample])


def read(**values: Any) -> Sample:
    return SAMPLE.validate_python({"size": 1} | values)


def wrong(**values: Any) -> list[tuple[str, str]]:
    """Path and kind of every error."""
    with pytest.raises(ValidationError) as refused:
        read(**values)
    return [(".".join(map(str, error["loc"])), error["type"]) for error in refused.value.errors()]


def test_a_choice_is_read_and_written_as_its_word() -> None:
    assert read(recompute=["full"]).recompute == (Recompute.FULL,)
    assert (
        TypeAdapter(Document[Layout]).dump_python(Layout(recompute=Recompute.FULL), mode="json")["recompute"] == "full"
    )
    assert SAMPLE.json_schema()["$defs"]["Recompute"]["enum"] == list(Recompute.labels())


def test_a_text_is_bounded_by_its_field_and_else_by_the_usual_length() -> None:
    adapter = TypeAdapter(Document[tuple[str, Annotated[str, Field(max_length=20_000)]]])
    assert adapter.validate_python(("x" * 10_000, "x" * 20_000))
    with pytest.raises(ValidationError) as refused:
        adapter.validate_python(("x" * 10_001, "x" * 20_001))
    assert [error["ctx"]["max_length"] for error in refused.value.errors()] == [10_000, 20_000]


def test_only_the_given_fields_of_an_object_are_read() -> None:
    assert read(space={"micro_batch_size": [1, 2], "recompute": ["none"]}).space == {
        "micro_batch_size": (1, 2),
        "recompute": (Recompute.NONE,),
    }


def test_every_error_is_found_at_once() -> None:
    assert wrong(size=True, colour="red", layout={"recompute": "ful", "compiled": 1}, space={"micro": [1]}) == [
        ("size", "int_type"),
        ("layout.recompute", "one_of"),
        ("layout.compiled", "bool_type"),
        ("space.micro", "unexpected_keyword_argument"),
        ("colour", "unexpected_keyword_argument"),
    ]


@pytest.mark.parametrize("value", [True, "1", 1.0, float("nan"), 2**31, None])
def test_a_whole_number_is_no_other_kind_of_value_and_has_bounds(value: object) -> None:
    assert [path for path, _ in wrong(size=value)] == ["size"]


@pytest.mark.parametrize("value", [True, "1", float("inf"), 1e31, 10**400, None])
def test_a_number_is_no_other_kind_of_value_and_has_bounds(value: object) -> None:
    assert [path for path, _ in wrong(rate_per_s=value)] == ["rate_per_s"]


def test_numbers_have_bounds_and_only_byte_counts_may_pass_32_bits() -> None:
    assert read(rate_per_s=10**15).rate_per_s == 1e15
    assert read(memory_bytes=2**40).memory_bytes == 2**40
    assert SAMPLE.json_schema()["properties"]["size"]["maximum"] == 2**31 - 1
    assert SAMPLE.json_schema()["properties"]["memory_bytes"]["maximum"] == 2**63 - 1


@pytest.mark.parametrize("text", ["a\0b", "\ud800", 7])
def test_text_is_what_a_database_can_store(text: object) -> None:
    assert [path for path, _ in wrong(model=text)]


@pytest.mark.parametrize(("cls", "value"), [(SweepRequest, sweep_request()), (Cluster, cpu_cluster())])
def test_a_document_is_what_the_codec_reads_and_writes(cls: Any, value: Any) -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(Document[cls])
    assert adapter.dump_python(value, mode="json") == to_plain(value)
    assert adapter.validate_python(to_plain(value)) == value


def test_a_loss_that_is_no_number_is_null() -> None:
    adapter: TypeAdapter[Measurement] = TypeAdapter(Document[Measurement])
    diverged = measurement(losses=(1.0, float("nan")))
    assert b'"losses":[1.0,null]' in adapter.dump_json(diverged)
    assert {"type": "null"} in adapter.json_schema()["properties"]["losses"]["items"]["anyOf"]


def dataclasses_below(cls: type[Any]) -> set[type[Any]]:
    """The class and every dataclass among the types of its fields."""
    found = {cls}
    waiting = list(get_type_hints(cls).values())
    while waiting:
        hint = waiting.pop()
        waiting += getattr(hint, "__args__", ())
        if isinstance(hint, type) and is_dataclass(hint) and hint not in found:
            found |= dataclasses_below(hint)
    return found


@pytest.mark.parametrize("body", [SweepCreate, PredictionRequest, ExplanationRequest])
def test_every_number_and_text_of_a_request_has_bounds(body: Any) -> None:
    schema = TypeAdapter(Document[body]).json_schema()
    named = {shape["title"].removesuffix(" in short"): shape for shape in objects_in(schema)} | {"": schema}
    assert {cls.__name__ for cls in dataclasses_below(body)} - {
        body.__name__,
        "Stack",
        "Trainer",
    } <= named.keys()  # these are only named
    leaves = [shape for part in named.values() for shape in leaves_of(part["properties"])]
    assert len(leaves) > 30
    for leaf in leaves:
        assert {"integer": "maximum", "number": "maximum", "string": "pattern"}[leaf["type"]] in leaf


def objects_in(shape: Any) -> list[dict[str, Any]]:
    """The objects with named fields in a JSON schema."""
    parts = shape if isinstance(shape, list) else list(shape.values()) if isinstance(shape, dict) else []
    found = [shape] if isinstance(shape, dict) and isinstance(shape.get("properties"), dict) else []
    return [one for one in (*found, *(inner for part in parts for inner in objects_in(part))) if "title" in one]


def leaves_of(shape: Any) -> list[dict[str, Any]]:
    """The numbers and texts in a JSON schema, without those that are one of some words."""
    if isinstance(shape, list):
        return [leaf for item in shape for leaf in leaves_of(item)]
    if not isinstance(shape, dict):
        return []
    if shape.get("type") in ("integer", "number", "string"):
        return [] if "enum" in shape or "const" in shape else [shape]
    return [leaf for item in shape.values() for leaf in leaves_of(item)]


def test_no_field_of_a_request_is_hidden() -> None:
    schema = TypeAdapter(Document[SweepCreate]).json_schema()
    assert schema["properties"].keys() == {spec.name for spec in fields(SweepCreate)}
    assert schema["additionalProperties"] is False


def test_a_document_is_refused_with_every_field_that_does_not_fit_by_rule_and_nearest() -> None:
    with pytest.raises(InvalidDocument) as refused:
        documents.read(Workload, {"seq_len": "1", "seqlen": 2, "global_batch_size": 8}, "workload")
    assert [(each.field, each.nearest) for each in refused.value.complaints] == [
        ("workload.seqlen", None),
        ("workload.seq_len", None),
    ]
    assert "is not a known field (did you mean seq_len?)" in str(refused.value)
    assert "must be a whole number" in str(refused.value)
    with pytest.raises(InvalidDocument) as refused:
        documents.read(Workload, {"seq_len": 0, "global_batch_size": 8}, "workload")
    assert (refused.value.field, refused.value.rule, refused.value.nearest) == (
        "workload.seq_len",
        "must be above 0",
        1,
    )


def test_a_refused_document_pickles_with_all_its_complaints() -> None:
    with pytest.raises(InvalidDocument) as refused:
        documents.read(Workload, {})
    again = pickle.loads(pickle.dumps(refused.value))
    assert str(again) == str(refused.value)
    assert [each.field for each in again.under("job").complaints] == ["job.seq_len", "job.global_batch_size"]


def test_stored_documents_are_read_without_fields_of_a_newer_release() -> None:
    diverged = measurement(losses=(1.0, float("nan")))
    again = documents.restore(Measurement, {**to_plain(diverged), "colour": "red"})
    assert isnan(again.losses[1])
    assert documents.restore(Workload, {"seq_len": 2**40, "global_batch_size": 1}).seq_len == 2**40


class Slow(Enum):
    """A choice during whose preparation the user interrupts the command."""

    A = "a"

    @enum_property
    def value(self) -> str:
        signal.raise_signal(signal.SIGTERM)  # a shell lets its jobs in the background ignore SIGINT
        return "a"


@dataclass(frozen=True)
class Unprepared:
    """A document that is read for the first time."""

    choice: Slow


def test_an_interrupt_while_the_first_document_of_a_type_is_read_is_an_interrupt() -> None:
    with pytest.raises(KeyboardInterrupt), terminable():
        documents.read(Unprepared, {"choice": "a"})
