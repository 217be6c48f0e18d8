"""``autotuner explain`` and ``rules``: why one layout is as fast as it is, and what measured layouts teach."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotuner.cli.options import (
    Json,
    LengthsText,
    LinkHealthText,
    OptionalCluster,
    OptionalGlobalBatch,
    OptionalLayoutText,
    OptionalModel,
    OptionalSeqLen,
    OptionalStack,
    OptionalTrialId,
    Server,
    refuse_beside_trial,
    require_without_trial,
    stored_id,
)

if TYPE_CHECKING:
    from autotuner.search.results.pairs import MeasuredRules


def explain(
    trial: OptionalTrialId = None,
    model: OptionalModel = None,
    cluster: OptionalCluster = None,
    global_batch: OptionalGlobalBatch = None,
    seq_len: OptionalSeqLen = None,
    layout: OptionalLayoutText = None,
    link_health: LinkHealthText = None,
    lengths: LengthsText = None,
    stack: OptionalStack = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    r"""Explain how a layout uses time and memory, what limits it, and which change would help.

    For a trial that ran, the measurement comes first.
    On several nodes, it also compares ways to exchange gradients.

    Example: autotuner explain --model llama-3-8b --cluster h100:8 \
        --global-batch 64 --seq-len 8k --layout 'fsdp8 mb1 recompute-selective'
    """
    from autotuner.cli.client import connect
    from autotuner.cli.console import console, print_json
    from autotuner.cli.inputs import may_be_stored, read_link_health, read_sequence_lengths
    from autotuner.core import documents
    from autotuner.core.requests import ExplanationRequest
    from autotuner.report.explanation import explanation_report
    from autotuner.report.terminal import render

    ran = None
    if trial is not None:
        job = {"model": model, "cluster": cluster, "global_batch": global_batch, "seq_len": seq_len}
        refuse_beside_trial(**job, layout=layout, link_health=link_health, lengths=lengths, stack=stack)
        with connect(server) as client:
            found, curve = client.explain_trial(trial), client.read_bandwidth_curve(trial)
            ran = client.read_trial(trial).measured
    else:
        body = _described(model=model, cluster=cluster, global_batch=global_batch, seq_len=seq_len, layout=layout)
        body |= {} if link_health is None else {"link_health": read_link_health(link_health)}
        body["workload"] |= {} if lengths is None else {"lengths": read_sequence_lengths(lengths)}
        body |= {} if stack is None else {"stack": stack}
        request = documents.read(ExplanationRequest, body)
        with connect(server, keep=may_be_stored(cluster or "")) as client:
            found, curve = client.explain_layout(request), client.draw_bandwidth_curve(request)
    if as_json:
        print_json(documents.write(found) | {"bandwidth": documents.write(curve)})
    else:
        console().print(render(explanation_report(found, curve, ran=ran)))


def rules(
    source: Annotated[str, typer.Argument(help="Id of a sweep, or a CSV file of measured runs.")],
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Show how much each single option changed the measured speed.

    It compares pairs of measured layouts that differ in nothing else.

    Example: autotuner rules sw-k3v7q2mxn5
    """
    from autotuner.cli.client import connect
    from autotuner.cli.console import show
    from autotuner.report.explanation import rules_report

    if source.endswith(".csv"):
        return show(_rules_of_table(source), rules_report, as_json=as_json)
    stored_id(source, "sweep", otherwise=", or a CSV file of measured runs")
    with connect(server) as client:
        return show(client.read_rules(source), rules_report, as_json=as_json)


def _described(**options: Any) -> dict[str, Any]:
    """The body of an explanation, from options that are only needed where no trial is given."""
    require_without_trial(**options)
    from autotuner.cli.inputs import job_body
    from autotuner.cli.layout_text import read_layout

    layout = read_layout(options.pop("layout"))
    return job_body(**options) | {"layout": layout}


def _rules_of_table(path: str) -> MeasuredRules:
    """Return what the service answers for a sweep, from the rows of a table."""
    from pathlib import Path

    from autotuner.backtest.table import read_table
    from autotuner.search.results.pairs import MeasuredRules, insights

    sheets = read_table(Path(path)).sheets
    found = insights((sheet.layouts, sheet.step_time_s) for sheet in sheets)
    num_measured = sum(int((~sheet.out_of_memory).sum()) for sheet in sheets)
    return MeasuredRules(num_measured=num_measured, items=found)
