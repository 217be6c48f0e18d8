"""The catalog on all surfaces: each shows the same figures."""

from __future__ import annotations

from rich.console import Console

from autotuner.catalog.hardware import load_accelerator
from autotuner.catalog.models import load_model
from autotuner.catalog.networks import load_preset
from autotuner.catalog.software import load_stack, stack_profiles
from autotuner.report.catalog import catalog_report, networks_report, stacks_report
from autotuner.report.html import Html
from autotuner.report.markdown import markdown
from autotuner.report.report import Report
from autotuner.report.terminal import render


def surfaces(report: Report) -> tuple[str, str, str]:
    """Return a report as terminal, page and Markdown show it."""
    terminal = Console(width=400)
    with terminal.capture() as printed:
        terminal.print(render(report))
    return printed.get(), Html().sections(report).striptags(), markdown(report)


def test_accelerators_and_models_have_the_same_figures_on_all_surfaces() -> None:
    shown = surfaces(
        catalog_report([load_accelerator("h100"), load_accelerator("v100")], [load_model("llama-3-8b")], [])
    )
    for text in shown:
        for figure in ("85.5 GB", "3.35 TB/s", "989 TFLOP/s", "1.98 PFLOP/s", "8.03B", "14,336", "–"):
            assert figure in text


def test_training_software_is_shown_with_its_runs_and_its_error() -> None:
    known = [one for one in stack_profiles() if one.name in ("typical", "megatron")]
    for text in surfaces(stacks_report(known)):
        assert "45 runs of dense models on a100-80gb" in text
        assert f"{100 * (known[1].left_out_error or 0):.1f} %" in text
        assert "ompared with no measured run" in text


def test_names_of_software_and_networks_are_shown() -> None:
    for text in surfaces(catalog_report([], [], [load_stack("megatron"), load_stack("nemo")])):
        assert "egatron, nemo" in text
    for text in surfaces(networks_report([load_preset("fat-tree-2to1")])):
        assert "32 ports down, 16 up" in text
