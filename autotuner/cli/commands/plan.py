"""``autotuner plan``: which cluster to take for a training run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotuner.cli.options import Json, Model, SeqLen, Server, Space, StackName
from autotuner.search.planning.request import USUAL_GLOBAL_BATCH, USUAL_SEQ_LEN

if TYPE_CHECKING:
    from autotuner.search.planning.plan import PlanView

_CLUSTERS, _MONEY = "Clusters to compare", "Prices"

_WAIT_S = 0.5

_LOOKING = "looking for clusters to compare"
_COMPARING = "comparing clusters: {} of {} pieces of work are done"


def plan(
    model: Model,
    tokens: Annotated[str, typer.Option("--tokens", help="Tokens to train on: 15.6T, 400B, 2e12.")],
    deadline: Annotated[
        str | None, typer.Option("--deadline", help="Longest time that the run may take: 60d, 8w, 36h.")
    ] = None,
    price_limit: Annotated[
        str | None, typer.Option("--price-limit", help="Largest cost of the run in US dollars: 3.5M.")
    ] = None,
    seq_len: SeqLen = USUAL_SEQ_LEN,
    global_batch: Annotated[
        int, typer.Option("--global-batch", help="Sequences per optimizer step.")
    ] = USUAL_GLOBAL_BATCH,
    accelerators: Annotated[
        str | None,
        typer.Option("--accelerators", help="Accelerators to compare: h100,h200. Default: all with a list price."),
    ] = None,
    cluster: Annotated[
        list[str] | None,
        typer.Option("--cluster", help="Cluster of yours to compare, as for `predict`. May be repeated."),
    ] = None,
    sizes: Annotated[
        str | None,
        typer.Option(
            "--sizes",
            help="Numbers of accelerators: 256,512. Default: powers of two of nodes that suit the goal.",
            rich_help_panel=_CLUSTERS,
        ),
    ] = None,
    max_accelerators: Annotated[
        int,
        typer.Option(
            "--max-accelerators",
            min=1,
            help="Largest number of accelerators, without --sizes.",
            rich_help_panel=_CLUSTERS,
        ),
    ] = 16_384,
    network: Annotated[
        str | None,
        typer.Option(
            "--network",
            help="Multiples of the usual bandwidth between nodes: 0.5,1,2.",
            rich_help_panel=_CLUSTERS,
        ),
    ] = None,
    more_memory: Annotated[
        str | None,
        typer.Option(
            "--more-memory",
            help="GB to add to the usual memory of an accelerator: 0,40.",
            rich_help_panel=_CLUSTERS,
        ),
    ] = None,
    price: Annotated[
        list[str] | None,
        typer.Option(
            "--price",
            help="Your US dollars per accelerator-hour: h100=2.1. May be repeated.",
            rich_help_panel=_MONEY,
        ),
    ] = None,
    tariff: Annotated[
        str | None,
        typer.Option(
            "--tariff",
            help="Energy price and emissions: a region (france), or fields as JSON or a JSON file: "
            '{"energy_price_per_kwh": 0.2}.',
            rich_help_panel=_MONEY,
        ),
    ] = None,
    space: Space = None,
    stack: StackName = "torch",
    limit: Annotated[int, typer.Option("--limit", min=1, help="Largest number of clusters to print.")] = 12,
    server: Server = None,
    as_json: Json = False,
) -> None:
    r"""Compare clusters for a training run by time, cost and energy, and recommend one.

    It runs nothing on a cluster.
    Without --deadline and --price-limit, it compares clusters by time x cost.

    Example: autotuner plan --model llama-3-70b --tokens 2T --deadline 60d \
        --seq-len 8k
    """
    from autotuner.cli.console import console, print_json
    from autotuner.cli.inputs import for_service, may_be_stored, read_space
    from autotuner.cli.money import price_body
    from autotuner.core.codec import to_plain
    from autotuner.report.plan import plan_report
    from autotuner.report.terminal import render
    from autotuner.search.planning.words import (
        read_amount,
        read_counts,
        read_duration_s,
        read_listed,
        read_numbers,
        read_prices,
    )

    body = {
        "model": for_service(model, kind="model"),
        "workload": {"seq_len": seq_len, "global_batch_size": global_batch},
        "goal": {
            "num_tokens": read_amount("--tokens", tokens),
            "deadline_s": None if deadline is None else read_duration_s("--deadline", deadline),
            "price_limit": None if price_limit is None else read_amount("--price-limit", price_limit),
        },
        "stack": stack,
        "accelerators": list(read_listed(accelerators)),
        "sizes": list(read_counts("--sizes", sizes)),
        "max_accelerators": max_accelerators,
        "network_factors": list(read_numbers("--network", network)) or [1.0],
        "extra_memory_bytes": [round(1e9 * one) for one in read_numbers("--more-memory", more_memory)] or [0],
        "clusters": [for_service(one, kind="cluster") for one in cluster or []],
        "prices": dict(read_prices("--price", price or [])),
        "space": read_space(space),
    } | price_body(None, tariff)
    view = _asked(body, knows_stored=any(map(may_be_stored, cluster or []))) if server is None else _sent(server, body)
    if as_json:
        print_json(to_plain(view))
    elif view.answer is not None:
        console().print(render(plan_report(view, view.answer, limit)))


def _asked(body: dict[str, Any], *, knows_stored: bool) -> PlanView:
    """The plan of this process; how far it is, on a line of its own."""
    from autotuner.cli.console import status
    from autotuner.cli.own_door import own_door
    from autotuner.core.documents import read
    from autotuner.search.planning.plan import PlanView
    from autotuner.search.planning.request import PlanRequest

    with own_door(knows_stored=knows_stored) as door, status(_LOOKING) as say:
        return PlanView.of(door.plan(read(PlanRequest, body), lambda done, known: say(_COMPARING.format(done, known))))


def _sent(server: str, body: dict[str, Any]) -> PlanView:
    """The plan of a service that runs already, once it is computed; how far it is, on a line of its own."""
    from autotuner.cli.client import connect
    from autotuner.cli.console import status
    from autotuner.core.documents import restore
    from autotuner.search.planning.plan import PlanView

    with connect(server) as client, status(_LOOKING) as say:
        found: dict[str, Any] = client.post("/plans", body)
        while found["answer"] is None:
            say(_COMPARING.format(found["num_done"], found["num_known"]))
            found = client.get(f"/plans/{found['id']}", wait_s=_WAIT_S)
    return restore(PlanView, found)
