"""Pages of the catalog's accelerators, models, training software and networks, made from the reports of commands."""

from __future__ import annotations

import re
from collections.abc import Sequence

from autotuner.catalog.hardware import accelerators, load_accelerator
from autotuner.catalog.models import load_model, models
from autotuner.catalog.networks import network_presets
from autotuner.catalog.software import stack_profiles
from autotuner.report.catalog import catalog_report, networks_report, stacks_report
from autotuner.report.markdown import markdown
from autotuner.report.report import Report, Section
from autotuner.report.support import support_report
from autotuner.search.support import support
from documentation.reference.markdown import head


def accelerators_page() -> str:
    """Return the Markdown page of all accelerators in the catalog."""
    summary = "The accelerators that `--cluster` accepts by name, such as `h100:64`, with the sources of their peaks."
    return _page("Accelerators", summary, _sections("Accelerators"), "autotuner catalog")


def models_page() -> str:
    """Return the Markdown page of all models in the catalog."""
    summary = "The models that `--model` accepts by name. `--model` also takes a `config.json` of a "
    summary += "[supported type](model-types.md)."
    return _page("Models", summary, _sections("Models"), "autotuner catalog")


def stacks_page() -> str:
    """Return the Markdown page of all training software in the catalog."""
    summary = "The training software that `--stack` accepts, and the measured runs behind its predictions."
    sections = (*stacks_report(stack_profiles()).sections, *support_report(support()).sections)
    return _page("Training software", summary, sections, "autotuner stacks", "autotuner support")


def networks_page() -> str:
    """Return the Markdown page of all networks in the catalog."""
    summary = "The networks that a cluster can name, with the sources of their numbers."
    return _page("Networks", summary, networks_report(network_presets()).sections, "autotuner cluster networks")


def _sections(title: str) -> Sequence[Section]:
    report = catalog_report([*map(load_accelerator, accelerators())], [*map(load_model, models())], [])
    return [Section(blocks=one.blocks) for one in report.sections if one.title == title]


def _page(title: str, summary: str, sections: Sequence[Section], *commands: str) -> str:
    body = markdown(Report(headline=title, sections=tuple(sections))).partition("\n")[2]
    body = re.sub(r"^### ", "## ", body, flags=re.MULTILINE)
    # reports escape every text, since names may come from users; the catalog's own sentences name commands
    body = re.sub(r"\\`(.*?)\\`", lambda code: "`" + re.sub(r"\\(.)", r"\1", code[1]) + "`", body)
    named = " and ".join(f"`{command}`" for command in commands)
    return f"{head(title, summary)}\n{named} {'prints' if len(commands) == 1 else 'print'} the same.\n{body}"
