"""Names of the catalog, in any table."""

from __future__ import annotations

import pytest

from autotuner.catalog.hardware import load_accelerator, load_cluster, load_link
from autotuner.catalog.models import load_model
from autotuner.catalog.software import load_stack
from autotuner.core.errors import NotFound


def test_names_of_models_stacks_and_links_are_read_in_any_case() -> None:
    assert load_model("Llama-3-70B") == load_model("llama-3-70b")
    assert load_stack("Megatron") == load_stack("megatron")
    assert load_link("NVLink4") == load_link("nvlink4")


def test_unknown_names_come_back_with_the_nearest() -> None:
    with pytest.raises(NotFound) as caught:
        load_accelerator("h10")
    assert (caught.value.kind, caught.value.key, caught.value.nearest) == ("accelerator", "h10", "h100")
    with pytest.raises(NotFound) as caught:
        load_model("llama3-70b")
    assert caught.value.nearest == "llama-3-70b"
    with pytest.raises(NotFound):
        load_cluster("tpu:8")
    with pytest.raises(NotFound) as caught:
        load_link("nvlink")
    assert (caught.value.kind, caught.value.nearest) == ("link", "nvlink5")
    with pytest.raises(NotFound) as caught:
        load_stack("megatron-lm")
    assert (caught.value.kind, caught.value.nearest) == ("stack", "megatron")
