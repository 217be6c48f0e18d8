from __future__ import annotations

from dataclasses import replace

from autotuner.catalog.load import load_model
from autotuner.catalog.spellings import model_like
from tests.builders import tiny_model


def test_a_model_without_a_known_name_is_the_catalog_s_of_the_same_shapes() -> None:
    assert model_like(replace(load_model("mixtral-8x7b"), name="imported")).name == "mixtral-8x7b"
    assert model_like(load_model("llama-3.1-70b")).name == "llama-3.1-70b"  # llama-3-70b has these shapes too
    assert model_like(tiny_model()) == tiny_model()
