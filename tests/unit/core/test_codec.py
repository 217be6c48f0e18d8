"""The JSON codec's refusals; round trips are in tests/properties."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from autotuner.core.choices import Precision
from autotuner.core.codec import SCHEMA_VERSION, dumps, from_plain, loads, to_plain, without_defaults
from autotuner.core.errors import InvalidInput
from autotuner.core.layout import Layout
from autotuner.core.measurement import Measurement
from autotuner.core.space import SearchSpace
from autotuner.core.sweep import SweepRequest
from autotuner.core.workload import Workload
from tests.builders import measurement, sweep_request, tiny_job, tiny_model


def test_a_whole_request_survives_the_journey() -> None:
    request = sweep_request()
    assert loads(SweepRequest, dumps(request)) == request


def test_people_see_words_not_integers() -> None:
    assert to_plain(Layout())["precision"] == "bf16"
    assert to_plain(SearchSpace(precision=(Precision.FP8,)))["precision"] == ["fp8"]


def test_fields_with_defaults_may_be_left_out() -> None:
    assert from_plain(Layout, {"tensor_parallel_degree": 2}) == Layout(tensor_parallel_degree=2)


def test_a_whole_number_is_read_where_a_fraction_may_stand() -> None:
    assert from_plain(Measurement, {**to_plain(measurement()), "step_time_s": 2}).step_time_s == 2.0


def test_a_float_that_is_no_number_travels_as_null() -> None:
    text = dumps(replace(measurement(), losses=(math.nan, 1.0)))
    assert json.loads(text)["losses"] == [None, 1.0]
    assert math.isnan(loads(Measurement, text).losses[0])


@pytest.mark.parametrize(
    ("document", "field", "nearest"),
    [
        ({"seq_len": 1, "global_batch_size": 1, "seqlen": 2}, "seqlen", "seq_len"),
        ({"seq_len": 1}, "global_batch_size", None),
        ({"seq_len": "1", "global_batch_size": 1}, "seq_len", None),
        ({"seq_len": True, "global_batch_size": 1}, "seq_len", None),
        ({"seq_len": 1.5, "global_batch_size": 1}, "seq_len", None),
        ({"seq_len": 0, "global_batch_size": 1}, "seq_len", 1),
        ({"seq_len": 1, "global_batch_size": 1, "optimizer_state_precision": "fp8"}, "optimizer_state_precision", None),
    ],
)
def test_a_field_that_does_not_fit_is_named(document: dict[str, object], field: str, nearest: object) -> None:
    with pytest.raises(InvalidInput) as caught:
        from_plain(Workload, document)
    assert (caught.value.field, caught.value.nearest) == (field, nearest)


def test_the_path_leads_through_objects_and_lists() -> None:
    document = to_plain(sweep_request())
    document["space"]["precision"] = ["bf16", "fp4"]
    with pytest.raises(InvalidInput) as caught:
        from_plain(SweepRequest, document)
    assert caught.value.field == "space.precision.1"


def test_a_constructors_complaint_gains_the_path() -> None:
    document = to_plain(sweep_request())
    document["job"]["workload"]["seq_len"] = 0
    with pytest.raises(InvalidInput) as caught:
        from_plain(SweepRequest, document)
    assert (caught.value.field, caught.value.nearest) == ("job.workload.seq_len", 1)


@pytest.mark.parametrize("text", ["", "nonsense", "[]", "null", "3"])
def test_text_that_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="Workload"):
        loads(Workload, text)


def test_another_schema_version_is_refused() -> None:
    text = json.dumps({"schema_version": SCHEMA_VERSION + 1, "seq_len": 1, "global_batch_size": 1})
    with pytest.raises(InvalidInput) as caught:
        loads(Workload, text)
    assert (caught.value.field, caught.value.nearest) == ("schema_version", SCHEMA_VERSION)


def test_fields_at_their_defaults_can_be_left_out_at_any_depth() -> None:
    request = sweep_request(job=tiny_job(model=tiny_model(qk_norm=True)), seed=3)
    short = without_defaults(request)
    assert short["seed"] == 3
    assert short["job"]["model"]["qk_norm"] is True
    assert not {"name", "trainer", "challenge"} & short.keys()
    assert not {"norm", "experts"} & short["job"]["model"].keys()
    assert from_plain(SweepRequest, short) == request


def test_a_number_that_no_computer_reckons_with_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"step_time_s.*exceeds the range"):
        from_plain(Measurement, {**to_plain(measurement()), "step_time_s": 10**400})


def test_brackets_in_brackets_are_refused_as_any_other_text() -> None:
    with pytest.raises(InvalidInput, match="must be JSON"):
        loads(Layout, "[" * 5_000)
