"""Parameters of a published model of every family, against transformers' own model of that configuration."""

from __future__ import annotations

import pytest

from autotuner.catalog.huggingface import MODEL_TYPES, from_config
from autotuner.catalog.models import load_model, models
from tests.unit.catalog.huggingface.families import PAGE, page_rows
from tests.unit.catalog.huggingface.published import Published, published
from tests.unit.catalog.huggingface.transformers_models import num_parameters

every_model = pytest.mark.parametrize("model", published(), ids=lambda model: model.name)

READ_AS_ANOTHER = {
    *("kimi_vl", "gemma3", "llama4", "mistral3", "kimi_k25", "llava", "llava_next", "qwen3_5", "qwen3_5_moe"),
    *("qwen2_vl", "qwen2_vl_text", "qwen2_5_vl_text", "qwen3_vl", "qwen3_vl_text", "qwen3_vl_moe", "qwen3_vl_moe_text"),
    *("glm4v_moe", "glm4v_moe_text"),
}
"""Documents around a language model of a type that is tried, or other names of one."""


@every_model
def test_a_family_has_as_many_parameters_as_transformers_builds(model: Published) -> None:
    assert from_config(model.config, model.name).num_parameters == num_parameters(model)


def test_a_model_of_every_type_is_tried() -> None:
    assert {model.model_type for model in published()} == {*MODEL_TYPES} - READ_AS_ANOTHER


@every_model
def test_the_page_says_what_was_counted(model: Published) -> None:
    total = from_config(model.config, model.name).num_parameters
    (row,) = (row for row in page_rows(PAGE.read_text(encoding="utf-8")) if row.name == model.name)
    assert (row.model_type, row.total, row.by_transformers) == (model.model_type, total, total)


@pytest.mark.parametrize("name", sorted({model.name for model in published()} & {*models()}))
def test_a_model_of_the_catalog_is_what_its_config_describes(name: str) -> None:
    (model,) = (model for model in published() if model.name == name)
    assert from_config(model.config, name) == load_model(name)
