"""The product in one call: answers in this process, their frames and plots, and those of a service."""

from __future__ import annotations

import doctest
import inspect
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest

import autotuner
from autotuner import client
from autotuner.catalog.named import load
from autotuner.core.access import Scope
from autotuner.core.cluster import Cluster
from autotuner.core.errors import InvalidDocument, InvalidInput
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.model import TransformerSpec
from autotuner.core.requests import ExplanationRequest, ExportRequest, ImportRequest, PredictionRequest
from autotuner.core.workload import Workload
from autotuner.remote import ServiceError
from autotuner.store.sql import memory_store
from tests.api.service import app_on, serve

JOB: dict[str, Any] = {"global_batch_size": 64, "seq_len": 8192}


@pytest.fixture(scope="module")
def answer() -> client.Predictions:
    return autotuner.predict("llama-3-8b", "h100:8", **JOB)


def test_the_examples_of_the_functions_run() -> None:
    ran = doctest.testmod(client)
    assert ran.failed == 0
    assert ran.attempted > len(autotuner.__all__)


def test_the_package_names_its_functions_and_ranks_load_none_of_them() -> None:
    assert set(autotuner.__all__) <= set(dir(autotuner))
    with pytest.raises(AttributeError, match="has no attribute 'predicted'"):
        _ = autotuner.predicted
    code = "import sys, autotuner; sys.exit('autotuner.client' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("function", "request_type"),
    [
        (autotuner.predict, PredictionRequest),
        (autotuner.explain, ExplanationRequest),
        (autotuner.export, ExportRequest),
    ],
)
def test_arguments_are_fields_of_the_rest_body(function: Any, request_type: Any) -> None:
    named = {each.name for each in fields(request_type)} | {each.name for each in fields(Workload)}
    assert set(inspect.signature(function).parameters) - {"more"} <= named, named


def test_an_answer_shows_itself_as_text_markdown_html_and_json(answer: client.Predictions) -> None:
    first = str(answer.best.layout)
    assert first in " ".join(str(answer).split())
    assert "<table" in answer._repr_html_()
    assert "| layout |" in answer.to_markdown()
    assert answer.to_dict()["items"][0]["label"] == first


def test_a_frame_has_a_row_for_each_layout_and_a_column_for_each_option(answer: client.Predictions) -> None:
    frame = answer.to_frame()
    assert list(frame["layout"]) == [str(one.layout) for one in answer]
    assert set(OPTIONS) <= set(frame.columns)
    assert frame["step_time_s"].iloc[0] == answer.best.step_time_s


def test_a_plot_joins_the_layouts_that_no_other_beats_in_both_speed_and_memory(answer: client.Predictions) -> None:
    mpl.use("agg")
    ((line,), (points,)) = answer.plot().lines, answer.plot().collections
    front = list(zip(line.get_xdata(), line.get_ydata(), strict=True))
    assert len(points.get_offsets()) == len(answer)
    assert all(any(x <= point[0] and y >= point[1] for x, y in front) for point in points.get_offsets())


def test_descriptions_may_be_values_documents_and_names() -> None:
    model = autotuner.explain("llama-3-8b", "h100:8", "fsdp8 mb1", **JOB).value
    values = load(TransformerSpec, "llama-3-8b"), load(Cluster, "h100:8"), Layout.parse("fsdp8 mb1")
    assert autotuner.explain(*values, **JOB).value == model


def test_a_wrong_argument_names_the_nearest_legal_one() -> None:
    with pytest.raises(InvalidDocument, match=r"limt = 4.*did you mean limit\?"):
        autotuner.predict("llama-3-8b", "h100:8", limt=4, **JOB)


def test_the_best_of_nothing_is_refused() -> None:
    none = autotuner.predict("llama-3.1-405b", "h100:1", global_batch_size=8, seq_len=8192)
    assert len(none) == 0
    with pytest.raises(InvalidInput, match="is the number of legal layouts, but none of them fits in memory"):
        _ = none.best


def test_a_script_is_read_from_its_text_and_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "train.sh"
    path.write_text("torchrun pretrain_gpt.py --tensor-model-parallel-size 4 --micro-batch-size 2 --bf16\n")
    of_file = autotuner.import_script(path, num_ranks=8)
    assert of_file.value.layout.tensor_parallel_degree == 4
    assert of_file.value == autotuner.import_script(path.read_text(), num_ranks=8).value
    assert {each.name for each in fields(ImportRequest)} >= {"num_ranks", "format"}


def test_a_service_answers_as_this_process_does(answer: client.Predictions) -> None:
    with serve(app_on(memory_store())) as address, autotuner.connect(address) as service:
        assert str(service.predict("llama-3-8b", "h100:8", **JOB)) == str(answer)
        assert str(service.explain("llama-3-8b", "h100:8", answer.best.layout, **JOB)) == str(
            autotuner.explain("llama-3-8b", "h100:8", answer.best.layout, **JOB)
        )


def test_support_is_the_same_here_and_at_a_service_and_has_no_links_in_a_notebook() -> None:
    here = autotuner.support("llama-3-8b", "h100", stack="nemo")
    assert here.value.details is not None
    every = autotuner.support()
    assert "<table" in every._repr_html_()
    assert "<a " not in every._repr_html_()
    with serve(app_on(memory_store())) as address:
        service = autotuner.connect(address)
        assert service.support("llama-3-8b", "h100", stack="nemo").to_dict() == here.to_dict()
        assert service.support().value == every.value
        with pytest.raises(ServiceError, match="did you mean 'h100'"):
            service.support(accelerator="h1000")


def test_a_service_is_shown_the_token_that_was_given() -> None:
    app = app_on(memory_store(), login="tokens")
    token = app.tokens.add("ada", Scope.RUN)[1]
    with serve(app) as address:
        with pytest.raises(ServiceError, match="token"):
            autotuner.connect(address, "at_wrong").predict("llama-3-8b", "h100:8", **JOB)
        assert len(autotuner.connect(address, token).predict("llama-3-8b", "h100:8", **JOB))
