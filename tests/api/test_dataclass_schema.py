from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest
from pydantic import ValidationError

from api.body import refuse_unstorable
from api.dataclass_schema import DescribedBy, schema_of
from autotuner.domain.choice import Recompute
from autotuner.domain.layout import Layout
from autotuner.domain.sweep import SweepRequest
from autotuner.domain.trial import Measurement, Trial
from autotuner.domain.wire import to_dict
from autotuner.errors import InvalidInput
from tests.builders import measurement, sweep_request


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A sample.

    Attributes:
        size: How large it is,
            in two lines.
    """

    size: int
    memory_bytes: int = 1
    recompute: tuple[Recompute, ...] = (Recompute.NONE,)
    layout: Layout = field(default_factory=Layout)
    wide: Annotated[object, DescribedBy(str | Layout)] = ""


def properties(cls: Any) -> Any:
    return schema_of(cls).model_json_schema()["properties"]


def test_a_docstring_describes_its_fields() -> None:
    assert schema_of(Sample).model_json_schema()["description"] == "A sample."
    assert properties(Sample)["size"]["description"] == "How large it is, in two lines."


def test_a_choice_is_one_of_its_words() -> None:
    assert properties(Sample)["recompute"]["items"]["enum"] == list(Recompute.labels())


def test_defaults_are_shown_as_the_codec_writes_them() -> None:
    assert properties(Sample)["recompute"]["default"] == ["none"]
    assert properties(Sample)["layout"]["default"] == to_dict(Layout())


def test_a_reference_is_shown_as_what_may_stand_in_its_place() -> None:
    assert {"type": "string"} in properties(Sample)["wide"]["anyOf"]
    assert {"$ref": "#/$defs/Layout"} in properties(Sample)["wide"]["anyOf"]


def test_only_byte_counts_may_pass_32_bits() -> None:
    assert properties(Sample)["size"]["maximum"] == 2**31 - 1
    assert properties(Sample)["memory_bytes"]["maximum"] == 2**63 - 1


@pytest.mark.parametrize(("cls", "value"), [(SweepRequest, sweep_request()), (Measurement, measurement())])
def test_what_the_codec_writes_keeps_the_schema(cls: Any, value: Any) -> None:
    schema_of(cls).model_validate(to_dict(value), strict=True)


def test_an_unknown_field_breaks_the_schema() -> None:
    with pytest.raises(ValidationError):
        schema_of(Sample).model_validate({"size": 1, "colour": "red"})


def test_one_dataclass_has_one_model() -> None:
    assert schema_of(Trial) is schema_of(Trial)


def test_a_rate_may_be_written_without_a_fraction_and_a_count_may_not_be_as_large() -> None:
    refuse_unstorable({"rate_per_s": 10**15}, frozenset({"rate_per_s"}))
    with pytest.raises(InvalidInput, match=r"axes\.degrees\.1"):
        refuse_unstorable({"axes": {"degrees": [1, 10**15]}}, frozenset({"rate_per_s"}))
