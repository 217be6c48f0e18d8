"""``autotuner cluster``: stores clusters by name, with their engines, and checks what they reach."""

from __future__ import annotations

from os.path import isfile
from typing import TYPE_CHECKING, Annotated, cast

import typer

from autotuner.catalog.topology.reading import TopologyRequest
from autotuner.cli.console import console, notes, open_service, print_json, progress, show, tell
from autotuner.cli.files import read_object, read_text
from autotuner.cli.flags import SELDOM, Json, Server, Wait, flags
from autotuner.core.cluster_check import CheckRequest, CheckRun
from autotuner.core.codec import to_plain
from autotuner.core.documents import read, write
from autotuner.core.errors import InvalidInput
from autotuner.core.text import described

if TYPE_CHECKING:
    from typing import Any

    from autotuner.remote import Remote

cluster = typer.Typer(no_args_is_help=True, help="Store clusters by name, and check that trials can run on them.")

_NOTHING_MEASURED = 6

_Name = Annotated[str, typer.Argument(help="Name of the cluster.")]


@cluster.command("add")
def add(
    name: _Name,
    accelerator: Annotated[
        str | None,
        typer.Option(
            "--accelerator", help="Accelerator of the catalog (h100). It decides the usual nodes, links and price."
        ),
    ] = None,
    nodes: Annotated[int | None, typer.Option("--nodes", min=1, help="Number of nodes.")] = None,
    per_node: Annotated[int | None, typer.Option("--per-node", min=1, help="Accelerators per node.")] = None,
    engine: Annotated[
        str | None, typer.Option("--engine", help="Engine that runs its trials. `autotuner engines` lists the names.")
    ] = None,
    queue: Annotated[str | None, typer.Option("--queue", help="Queue of the engine. Default: its first queue.")] = None,
    network: Annotated[
        str | None, typer.Option("--network", help="Link between nodes, by its name in the catalog (ndr400).")
    ] = None,
    oversubscription: Annotated[
        float | None,
        typer.Option(
            "--oversubscription",
            min=1,
            help="Ratio of the nodes' bandwidth to the bandwidth of the network's core.",
            rich_help_panel=SELDOM,
        ),
    ] = None,
    topology: Annotated[
        list[str] | None,
        typer.Option(
            "--topology",
            help="Network of the catalog (fat-tree-2to1), or a file that `cluster topology` reads. May be repeated.",
            rich_help_panel=SELDOM,
        ),
    ] = None,
    price: Annotated[
        float | None,
        typer.Option("--price", min=0, help="US dollars per accelerator-hour.", rich_help_panel=SELDOM),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="JSON file with a description (docs/reference/descriptions.md). Other options change its fields.",
            rich_help_panel=SELDOM,
        ),
    ] = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Store a cluster under a name that --cluster accepts.

    Example: autotuner cluster add ours --accelerator h100 --nodes 16 --per-node 8
    """
    from autotuner.report.cluster import cluster_added

    if file is None and accelerator is None:
        raise InvalidInput("--accelerator", None, "is required, for example h100; or name a file with --from")
    said = {
        "name": name,
        "accelerator": accelerator,
        "num_nodes": nodes,
        "accelerators_per_node": per_node,
        "engine": engine,
        "queue": queue,
        "inter_node_link": network,
        "oversubscription": oversubscription,
        "price_per_accelerator_hour": price,
    }
    document = {} if file is None else read_object(file, "cluster")
    document |= {key: value for key, value in said.items() if value is not None}
    with open_service(server) as service:
        saved = service.save_cluster(name, _with_topology(service, document, topology or []))
        show(saved, cluster_added, as_json=as_json)


@cluster.command("topology")
def topology_(
    files: Annotated[
        list[str],
        typer.Argument(
            help="Output of `nvidia-smi topo -m`, a NCCL_TOPO_FILE, Slurm's topology.conf or .yaml, or JSON."
        ),
    ],
    cluster_: Annotated[
        str | None,
        typer.Option(
            "--cluster", help="Cluster that the files describe, to apply them to: a name, h100:128, or a JSON file."
        ),
    ] = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Read files that describe a network or a node, and print their content.

    This command stores nothing.
    `autotuner cluster add --topology FILE` stores a cluster with that network.

    Example: autotuner cluster topology topology.conf --cluster h100:128
    """
    from autotuner.report.cluster import topology_report

    body = {"files": [read_text(each, "topology") for each in files]}
    with open_service(server, keep=False) as service:
        asked = body if cluster_ is None else body | {"cluster": described(cluster_, "--cluster", read_text)}
        show(service.read_topology(read(TopologyRequest, asked)), topology_report, as_json=as_json)


@cluster.command("networks")
def networks(server: Server = None, as_json: Json = False) -> None:
    """List the networks that a cluster can name, with the sources of their numbers.

    Example: autotuner cluster networks
    """
    from autotuner.report.catalog import networks_report

    tell(
        server,
        lambda service: service.list_networks(),
        lambda found: networks_report(found.items),
        as_json=as_json,
        keep=False,
    )


@cluster.command("list")
def list_(server: Server = None, as_json: Json = False) -> None:
    """List the stored clusters, with their engine and their last check.

    Example: autotuner cluster list
    """
    from autotuner.report.cluster import clusters_report

    with open_service(server) as service:
        found = service.list_clusters()
        names = [] if as_json else [each.name for each in found.items]
        checks = {name: last for name in names if (last := _last_check(service, name))}
        links = {name: service.list_links(name) for name in names}
    show(found, lambda clusters: clusters_report(clusters, checks, links, server or ""), as_json=as_json)


@cluster.command("show")
def show_(name: _Name, server: Server = None, as_json: Json = False) -> None:
    """Print the engine, the links and the last check of a stored cluster.

    For the links, it prints the described values and the measured values.

    Example: autotuner cluster show ours
    """
    from autotuner.report.cluster import cluster_report

    with open_service(server) as service:
        links = service.list_links(name)  # first, because only stored clusters have links
        found, check = service.read_cluster(name), _last_check(service, name)
    answer = {"cluster": found, "links": links, "check": check}
    report = cluster_report(found, found.accelerator, links, [check] if check else [], server=server or "")
    show(answer, lambda _: report, as_json=as_json)


@cluster.command("remove")
def remove(name: _Name, server: Server = None, as_json: Json = False) -> None:
    """Remove a stored cluster, its checks and their measurements.

    Sweeps keep the cluster that they started with.

    Example: autotuner cluster remove ours
    """
    from autotuner.report.report import Report

    gone = Report(headline=f"{name} is removed, with its checks and their measurements.", sections=())
    tell(server, lambda service: service.remove_cluster(name), lambda _: gone, as_json=as_json)


@cluster.command("check")
@flags(CheckRequest)
def check(
    request: CheckRequest,
    name: _Name,
    wait: Wait = True,
    cancel: Annotated[bool, typer.Option("--cancel", help="Cancel the running check and its jobs.")] = False,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Run a small trial on a stored cluster, and measure its devices and links for predictions.

    A check that a service runs continues when you close the terminal.
    Exit code 6: the check failed or was cancelled.

    Example: autotuner cluster check ours
    """
    from autotuner.cli.follow import follow_check
    from autotuner.report.cluster import check_queued

    with open_service(server, runs_checks=wait or cancel) as service:
        found = _running(service, name)
        if cancel and found is None:
            console().print(f"no check of {name} is running")
            return
        if found is None:
            found = service.create_check(name, request)
        if cancel:
            found = service.cancel_run(CheckRun, found.id)
        if wait or cancel:
            with progress(f"checking {name}"):
                found = follow_check(service, found.id, notes(quiet=as_json))
    if not wait and not cancel:
        show(found, check_queued, as_json=as_json)
    elif as_json:
        print_json(write(found))
    if found.state in ("failed", "cancelled") and not cancel:
        raise typer.Exit(_NOTHING_MEASURED)


def _with_topology(service: Remote, document: dict[str, Any], topology: list[str]) -> dict[str, Any]:
    """Return the cluster's description with a network from the catalog and a topology from files."""
    files = [each for each in topology if isfile(each)]
    for name in topology:
        if name not in files:
            document = document | {"network": name}
    if not files:
        return document
    texts = [read_text(each, "topology") for each in files]
    described = service.read_topology(read(TopologyRequest, {"files": texts, "cluster": document})).cluster
    return cast("dict[str, Any]", to_plain(described))


def _last_check(service: Remote, name: str) -> CheckRun | None:
    items = service.list_runs(CheckRun, subject=name, limit=1).items
    return items[0] if items else None


def _running(service: Remote, name: str) -> CheckRun | None:
    """Return the unfinished check of this cluster, or None."""
    last = _last_check(service, name)
    return None if last is None or last.state.is_finished else last
