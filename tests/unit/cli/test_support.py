"""Support of predictions: what is measured, borrowed and assumed, its report and its command."""

from __future__ import annotations

import pytest

from autotuner.catalog.hardware import accelerators
from autotuner.catalog.models import load_model
from autotuner.catalog.software import comparisons, stacks
from autotuner.core.errors import NotFound
from autotuner.report.support import support_report
from autotuner.search.support import SupportLevel, support
from tests.unit.cli.command_line import CommandLine
from tests.unit.report.surfaces import surfaces


def test_the_matrix_has_every_pair_and_all_runs_of_the_catalog() -> None:
    found = support()
    assert len(found.pairs) == len(accelerators()) * len(stacks())
    assert sum(one.runs for pair in found.pairs for one in pair.measured) == sum(
        one.runs for one in comparisons().values()
    )
    assert found.details is None
    assert all((pair.level == SupportLevel.MEASURED) == bool(pair.measured) for pair in found.pairs)


def test_a_pair_has_the_level_of_its_closest_runs_of_this_kind_of_model() -> None:
    dense, experts = load_model("llama-3-8b"), load_model("deepseek-v3")
    levels = {
        ("nemo", "h100", dense): "measured",
        ("nemo", "h100", experts): "measured",
        ("maxtext", "h100", dense): "measured",
        ("maxtext", "h100", experts): "borrowed",
        ("typical", "h100", dense): "borrowed",
        ("nemo", "mi300x", dense): "assumed",
    }
    for (stack, accelerator, model), level in levels.items():
        (pair,) = support(model, accelerator, stack).pairs
        assert pair.level == level, (stack, accelerator, model.name)
        assert all(one.model == ("models with experts" if model.experts else "dense models") for one in pair.measured)


def test_a_pair_names_its_borrowed_constants_the_closest_runs_and_what_was_never_compared() -> None:
    details = support(load_model("deepseek-v3"), "mi300x", "nemo").details
    assert details is not None
    assert "as on h100" in {one.origin for one in details.borrowed}
    assert ("clock", "assumed, as on H100") in {(one.constant, one.origin) for one in details.assumed}
    assert {one.stack for one in details.elsewhere} == {"nemo"}
    assert "latent attention" not in details.assumed_choices  # runs of other stacks had it
    assert "queue pairs" in details.assumed_choices
    assert "flex attention" not in details.assumed_choices  # this stack cannot run it


def test_the_latest_accelerators_borrow_from_their_neighbours() -> None:
    details = support(None, "gb300", "megatron-bridge").details
    assert details is not None
    assert {"as on gb200", "as on b300", "as on 4 nodes of A100"} <= {one.origin for one in details.borrowed}
    assert details.elsewhere == ()


@pytest.mark.parametrize(("accelerator", "stack"), [("h1000", ""), ("", "nemoo")])
def test_a_wrong_name_is_refused_with_the_most_similar_one(accelerator: str, stack: str) -> None:
    with pytest.raises(NotFound, match="did you mean"):
        support(None, accelerator, stack)


def test_all_surfaces_show_runs_sources_and_errors() -> None:
    runs = comparisons()["nemo", "h100-sxm", "dense models"]
    assert runs.median_error is not None
    for text in surfaces(support_report(support(load_model("llama-3-8b"), "h100", "nemo"))):
        for part in (
            "for llama-3-8b on h100-sxm with nemo",
            "dgxc_benchmarking",
            f"{runs.runs}",
            "as FlashAttention 3",
        ):
            assert part in text
        assert f"{100 * runs.median_error:.1f} %" in text


def test_the_matrix_shows_runs_borrowed_pairs_and_accelerators_that_nobody_measured() -> None:
    for text in surfaces(support_report(support())):
        assert "borrowed" in text
        assert "Assumed with every stack: " in text
        assert "mi300x" in text.partition("Assumed with every stack: ")[2]
    for text in surfaces(support_report(support(None, "mi300x"))):
        assert "on mi300x" in text
        assert "Assumed with every stack" not in text


def test_the_command_answers_for_a_pair_and_for_all(cli: CommandLine) -> None:
    assert len(cli.run_json("support")["pairs"]) == len(accelerators()) * len(stacks())
    found = cli.run_json("support", "llama-3-8b", "h100", "--stack", "nemo")
    assert [(one["accelerator"], one["stack"], one["level"]) for one in found["pairs"]] == [
        ("h100-sxm", "nemo", "measured")
    ]
    assert "Borrowed" in cli.run("support", "llama-3-8b", "h100", "--stack", "nemo")
    assert "did you mean 'llama-3-8b'" in cli.error_of("support", "llama-3-8", code=3)
