"""The reports of clusters: the list, one cluster with its links, topology and checks, and a cluster read from files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from autotuner.catalog.topology.reading import TopologyReading
from autotuner.core.accelerator import Accelerator
from autotuner.core.cluster import LOCAL, SIMULATED, Cluster
from autotuner.core.cluster_check import CheckRun
from autotuner.core.link import (
    MOST_ENDS_OF_ALL_PAIRS,
    Link,
    LinkEnds,
    LinkHealth,
    LinkPoint,
    health_said,
    links_compared,
    links_judged,
)
from autotuner.core.listed import Stored
from autotuner.core.profile import ClusterLinks, DeviceProfile, LinkStanding
from autotuner.core.units import format_rate
from autotuner.report.charts import Topology
from autotuner.report.report import (
    Block,
    Button,
    Cell,
    Cells,
    Code,
    Column,
    Figure,
    Folded,
    Lines,
    Matrix,
    Moment,
    Quantity,
    Quiet,
    Report,
    Section,
    State,
    Strong,
    Table,
)
from autotuner.report.report import Link as Leads
from autotuner.report.topologies import cluster_said, described_said, network_said, wiring_said
from autotuner.report.words import counted, moment, number, plain
from autotuner.search.explain.communication import Route

_NODES_NAMED = 3
"""Number of nodes that are named if there are many; the last node is named too if all names are known."""


# ------------------------------------------------------------------ the list of clusters
def clusters_report(
    clusters: Stored[Cluster],
    checks: Mapping[str, CheckRun],
    links: Mapping[str, ClusterLinks],
    server: str = "",
) -> Report:
    """Return the report of all stored clusters by name: where their trials run, and how they were last checked.

    Args:
        clusters: The clusters, with the caller who stored each.
        checks: The newest check of each cluster by the cluster's name; clusters that were never checked are not in it.
        links: The links of each cluster by the cluster's name.
        server: URL for the option ``--server`` of the commands that the report shows; empty: no such option.
    """
    columns = (
        Column("cluster", is_number=False),
        Column("accelerators"),
        Column("runs on", is_number=False),
        Column("last check", is_number=False),
        Column("links", is_number=False, is_minor=True),
    )
    table = Table(
        columns=columns,
        rows=[
            tuple(_row(one, clusters.created_by.get(one.name, ""), checks.get(one.name), links[one.name]))
            for one in clusters.items
        ],
        caption=f"{counted(len(clusters.items), 'stored cluster')}, by name",
    )
    facts = ("Where jobs and their trials run.", Quiet("·"), Leads("engines and workers", "engines"))
    section = Section(blocks=(table,)) if clusters.items else _none(server)
    return Report(headline="Clusters", facts=facts, sections=(section,))


def _none(server: str) -> Section:
    at = f" --server {server}" if server else ""
    first = (
        f"autotuner engines{at}\n"
        f"autotuner cluster add ours --accelerator h100 --nodes 16 --per-node 8 --engine ENGINE{at}\n"
        f"autotuner cluster check ours{at}"
    )
    store = Lines(
        items=("Store a cluster with the engine that runs its trials, and measure its links:",), is_list=False
    )
    named = Lines(items=("Clusters of the catalog (such as h100:64) do not have to be stored.",), is_list=False)
    return Section(title="No cluster yet", blocks=(store, Code(first), named))


def _row(one: Cluster, created_by: str, check: CheckRun | None, links: ClusterLinks) -> Iterator[Cells]:
    name = Leads(one.name, "clusters", one.name, key=f"link-{one.name}")
    yield (name, Quiet(f"by {created_by}")) if created_by else name
    yield f"{one.num_nodes:,} × {one.accelerators_per_node} {one.accelerator.name}"
    yield (one.engine, Quiet(f"queue {one.queue}")) if one.queue else one.engine
    yield Quiet("never") if check is None else (State(check.state), Moment(check.finished_at or check.created_at))
    known: Cell = Quiet("as described") if links.measured_at is None else "measured"
    ailing = Leads(f"{len(links.health)} unhealthy", "clusters", one.name, part="one-by-one")
    yield (known, ailing) if links.health else known


def cluster_added(cluster: Cluster) -> Report:
    """Return a report that says that the cluster is stored, with its size and its engine."""
    size = f"{counted(cluster.num_nodes, 'node')} of {cluster.accelerators_per_node} {cluster.accelerator.name}"
    where = f"engine {cluster.engine}" + (f", queue {cluster.queue}" if cluster.queue else "")
    return Report(headline=f"{cluster.name} is stored: {size}, {where}", sections=())


# ------------------------------------------------------------------ one cluster
def cluster_report(
    cluster: Cluster,
    accelerator: Accelerator,
    links: ClusterLinks,
    checks: Sequence[CheckRun],
    created_by: str = "",
    server: str = "",
    *,
    has_buttons: bool = False,
) -> Report:
    """Return the report of one cluster: where its trials run, its links as described and as measured, and its checks.

    Args:
        cluster: The cluster as it is stored.
        accelerator: The accelerator as predictions use it, with the values that a check measured.
        links: The links, described and measured.
        checks: Checks of the cluster, the newest first.
        created_by: Caller who stored the cluster; empty: the service has no login.
        server: URL for the option ``--server`` of the commands that the report shows; empty: no such option.
        has_buttons: True if the reader may start a check, or cancel the one that runs.
    """
    nodes = f"{counted(cluster.num_nodes, 'node')} of {cluster.accelerators_per_node} ×"
    facts: list[Cell] = [nodes, Strong(cluster.accelerator.name), ". Trials run on", Strong(cluster.engine)]
    facts += [", queue", Strong(cluster.queue)] if cluster.queue else []
    facts += [". ", Quiet(f"By {created_by}.")] if created_by else ["."]
    sections = [
        Section(title="Links", blocks=tuple(_links(cluster, accelerator, links)), note=_measured_when(links)),
        topology_section(cluster),
        _one_by_one(cluster, links),
        Section(title="Checks", blocks=tuple(_checks(cluster, checks, server, has_buttons=has_buttons))),
    ]
    return Report(headline=cluster.name, facts=facts, sections=[one for one in sections if one is not None])


def _measured_when(links: ClusterLinks) -> str:
    reached = "Bandwidth of one accelerator for long messages, and latency of one step of a collective."
    if links.measured_at is None:
        return f"{reached} They were not measured: predictions use the values of the description."
    where = f"on {counted(links.num_nodes, 'node')} on {moment(links.measured_at)}"
    return f"{reached} They were measured {where}, and predictions use the measured values."


def _links(cluster: Cluster, accelerator: Accelerator, links: ClusterLinks) -> Iterator[Block]:
    columns = (
        Column("between", is_number=False),
        *(
            Column(name, group=group)
            for group in ("bandwidth", "latency of a step")
            for name in ("measured", "described")
        ),
        Column("described as", is_number=False),
    )
    yield Table(columns=columns, rows=[tuple(_link(one)) for one in links.items])
    is_measured = bool(accelerator.measured_gemm)
    bandwidth = Quantity(
        value=accelerator.measured_bandwidth_bytes_per_s or accelerator.memory_bandwidth_bytes_per_s,
        unit="bytes/s",
        source="measured" if is_measured else "predicted",
        beside="measured" if is_measured else "described",
    )
    figures = [Figure("memory bandwidth", bandwidth)]
    for gemm in accelerator.measured_gemm:
        share = Quantity(value=gemm.peak_share, unit="share", source="measured", beside="of the peak, measured")
        figures.append(Figure(f"products in {plain(gemm.precision)}", share))
    if cluster.network is None:
        thinner = Quantity(value=cluster.oversubscription, unit="", source="predicted", beside="described")
        figures.append(Figure("oversubscription", thinner))
    if cluster.price_per_accelerator_hour:
        figures.append(Figure("accelerator-hour", Quantity(value=cluster.price_per_accelerator_hour, unit="$")))
    yield tuple(figures)


def _link(one: LinkStanding) -> Iterator[Cells]:
    yield one.between
    yield _bandwidth(one.measured, is_measured=True)
    yield _bandwidth(one.described, is_measured=False)
    yield Quantity(value=one.measured.latency_s if one.measured else None, unit="s", source="measured")
    yield Quantity(value=one.described.latency_s, unit="s", source="predicted")
    yield one.described.name


def _bandwidth(link: Link | None, *, is_measured: bool) -> Quantity:
    value = None if link is None else link.bandwidth_bytes_per_s * link.efficiency
    return Quantity(value=value, unit="bytes/s", source="measured" if is_measured else "predicted")


# ------------------------------------------------------------------ its topology
def topology_section(cluster: Cluster, routes: Iterable[Route] = ()) -> Section | None:
    """Return a section on the network between nodes and the links inside a node; None if the cluster describes neither.

    Args:
        cluster: The cluster.
        routes: Paths that the parallel axes of a layout take through the network. The links that limit them are
            highlighted.
    """
    network = cluster.network
    if network is None and cluster.wiring is None:
        return None
    limits: dict[str, list[str]] = {}
    for route in routes:
        limits.setdefault(route.limiting_link, []).append(route.axis)
    source = f", from {network.source}" if network and network.source else ""
    name = f"Network {network.name}{source}. " if network and network.name else ""
    limiting = Lines(items=tuple(map(route_in_words, routes)))
    words = Folded(summary="In words", blocks=(Lines(items=described_said(cluster)),))
    return Section(
        title="Topology",
        blocks=(*([limiting] if limits else []), Topology(cluster=cluster, limits=limits), words),
        note=f"{name}A rate is the bandwidth of each rank while all ranks send.",
    )


_TRAFFIC = {"ring": "rings", "all_to_all": "all-to-alls", "send": "sends"}


def route_in_words(route: Route) -> str:
    """Describe the communication of a parallel axis and the network link that limits it.

    Example: ``shard: rings of 8 ranks on 4 nodes, limited by …``.
    """
    where = f"on {route.num_nodes} nodes" if route.num_nodes > 1 else "inside a node"
    limit = f"limited by {route.limiting_link} to {format_rate(route.bytes_per_s, 'B/s')} for each rank"
    return f"{route.axis}: {_TRAFFIC[route.traffic]} of {route.num_ranks} ranks {where}, {limit}"


def topology_report(reading: TopologyReading) -> Report:
    """Return the report of the topology files that were read: the nodes and links in them, and the assumptions.

    If a cluster was named, the report also says which bandwidth these links give to groups of its ranks.
    """
    named = []
    if reading.num_nodes:
        is_whole = len(reading.nodes) == reading.num_nodes  # of many, only the first are named
        last = reading.nodes[-1:] if is_whole else ()
        more = ("...",) if reading.num_nodes > _NODES_NAMED + 1 else ()
        names = dict.fromkeys((*reading.nodes[:_NODES_NAMED], *more, *last))
        named.append(
            f"{counted(reading.num_nodes, 'node')}, those below one switch beside each other: {', '.join(names)}"
        )
    if reading.num_accelerators:
        named.append(f"{counted(reading.num_accelerators, 'accelerator')} per node")
    means = [*network_said(reading.network), *wiring_said(reading.wiring)]
    means += [] if reading.cluster is None else cluster_said(reading.cluster)
    blocks = [
        Lines(items=named),
        Lines(items=means),
        Lines(items=[f"note: {one}" for one in reading.notes], is_quiet=True),
    ]
    return Report(headline=f"Read: {', '.join(reading.read)}", sections=(Section(blocks=blocks),))


# ------------------------------------------------------------------ its links one by one
def _one_by_one(cluster: Cluster, links: ClusterLinks) -> Section | None:
    """Return a section about single links; None if nothing is known about them."""
    if not links.one_by_one and not links.health:
        return None
    between_nodes = links.one_by_one_nodes > 1 if links.one_by_one else cluster.num_nodes > 1
    blocks: list[Block] = []
    matrix = _matrix(cluster, links, between_nodes=between_nodes)
    blocks += [matrix] if matrix.cells else []
    blocks.append(Lines(items=tuple(_judged(cluster, links, between_nodes=between_nodes)), is_list=False))
    if links.health:
        said = [(health_said(one, between_nodes=cluster.num_nodes > 1), one.source) for one in links.health]
        blocks.append(Lines(items=[(Strong(words) if source else Quiet(words),) for words, source in said]))
        go_by = "Predictions, explanations and sweeps for this cluster use them."
        blocks.append(Lines(items=(go_by,), is_quiet=True))
    if links.one_by_one:
        blocks.append(Folded(summary="Both ways of each link", blocks=(_pairs(links.one_by_one, links.health),)))
    return Section(title="Each link", blocks=blocks, id="one-by-one")


def _judged(cluster: Cluster, links: ClusterLinks, *, between_nodes: bool) -> Iterator[str]:
    if links.one_by_one:
        yield links_compared(links.one_by_one, between_nodes=between_nodes)
    if links.health:
        return
    if links.norm and links.one_by_one_nodes == cluster.num_nodes:
        yield "No link is unhealthy."
    elif links.one_by_one_nodes and links.one_by_one_nodes < cluster.num_nodes:
        yield (
            f"The engine does not say which of the cluster's {cluster.num_nodes} nodes were measured, so predictions "
            f"do not use these values. `autotuner cluster check {cluster.name} --links` measures all nodes."
        )


def _matrix(cluster: Cluster, links: ClusterLinks, *, between_nodes: bool) -> Matrix:
    """Return a matrix with a cell for each pair of ends; it is empty if there are too many ends to read it."""
    measured = {point.ends: point for point in links.one_by_one}
    of_whole = between_nodes == (cluster.num_nodes > 1)
    known = {health.ends: health for health in links.health if health.ends and of_whole}
    num_ends = max((high + 1 for _, high in {*measured, *known}), default=0)
    ends = range(num_ends if num_ends <= MOST_ENDS_OF_ALL_PAIRS else 0)
    when = (
        "These values are assumed, not measured."
        if links.one_by_one_at is None
        else f"Measured {moment(links.one_by_one_at)}. While a link was measured, its two ends sent nothing over "
        "other links."
    )
    return Matrix(
        cells=[[_pair(row, column, measured, known) for column in ends] for row in ends],
        bad={
            (row, column)
            for row in ends
            for column in ends
            if row != column and (health := known.get(_ends(row, column))) and _ails(health, is_delay=row < column)
        },
        caption=f"Between {'nodes' if between_nodes else 'accelerators'}: above the diagonal one-way delay, below it "
        f"bandwidth of the slower direction. {when}",
    )


def _ends(row: int, column: int) -> LinkEnds:
    return min(row, column), max(row, column)


def _pair(row: int, column: int, measured: Mapping[LinkEnds, LinkPoint], known: Mapping[LinkEnds, LinkHealth]) -> Cell:
    """Return one cell of the matrix: above the diagonal the delay of the link in one direction, below it the bandwidth.

    The bandwidth is that of the slower direction.
    """
    point, health, is_delay = measured.get(_ends(row, column)), known.get(_ends(row, column)), row < column
    if row == column:
        return None
    if point is not None:
        value = point.delay_s if is_delay else point.bandwidth_bytes_per_s
        return Quantity(value=value, unit="s" if is_delay else "bytes/s", source="measured")
    if health is None or not _ails(health, is_delay=is_delay):
        return ""
    if health.is_dead:
        return "dead"
    value = health.delay_s if is_delay else health.bandwidth_bytes_per_s or 0.0
    beside = "more" if is_delay else ""
    return Quantity(value=value, unit="s" if is_delay else "bytes/s", source="predicted", beside=beside)


def _ails(health: LinkHealth, *, is_delay: bool) -> bool:
    slow = health.delay_s > 0 if is_delay else health.bandwidth_bytes_per_s is not None
    return slow or health.is_dead


def _pairs(points: Sequence[LinkPoint], health: Sequence[LinkHealth]) -> Table:
    """Return a table of the bandwidth and the delay that each link reached in both directions."""
    ailing = {one.ends for one in health}
    rows: list[tuple[Cells, ...]] = [
        (
            f"{one.ends[0]} - {one.ends[1]}",
            *(Quantity(value=value, unit="s", source="measured") for value in (one.delay_s, one.jitter_s)),
            *(
                Quantity(value=value, unit="bytes/s", source="measured")
                for value in (one.forth_bytes_per_s, one.back_bytes_per_s)
            ),
            "unhealthy" if one.ends in ailing else "",
        )
        for one in points
    ]
    columns = (
        Column("link", is_number=False),
        *map(Column, ("one way", "jitter", "forth", "back")),
        Column("", is_number=False),
    )
    return Table(columns=columns, rows=rows, is_compact=True)


def links_report(profiles: Sequence[tuple[DeviceProfile, Cluster]]) -> Report:
    """Return the report of this machine's links: one section for each profile whose links were measured.

    Args:
        profiles: Profiles of this machine. Each comes with the cluster that predictions derive from the profile.
    """
    none = Section(blocks=(Lines(items=("No links were measured; `autotuner profile --links` measures them.",)),))
    known = [(one, cluster) for one, cluster in profiles if one.links_measured_at is not None]
    sections = [Section(blocks=tuple(_own_links(one.measurements.links, cluster))) for one, cluster in known]
    return Report(headline="Links of this machine", sections=sections or (none,))


def _own_links(points: Sequence[LinkPoint], cluster: Cluster) -> Iterator[Block]:
    if not points:
        yield Lines(items=("There is only one device, so there is no link to measure.",))
        return
    yield _pairs(points, cluster.link_health)
    judged = links_judged(cluster.link_health, points, between_nodes=False)
    yield Lines(items=(links_compared(points, between_nodes=False), *judged))


# ------------------------------------------------------------------ its checks
def _checks(cluster: Cluster, checks: Sequence[CheckRun], server: str, *, has_buttons: bool) -> Iterator[Block]:
    if cluster.engine in (LOCAL, SIMULATED):
        yield Lines(items=("Only clusters that run trials on a registered engine can be checked.",), is_quiet=True)
    elif not checks:
        asks = (
            "This cluster was never checked. A check asks the engine, trains for a minute on two nodes, and measures "
            "their devices and links:"
        )
        yield Lines(items=(asks,), is_list=False)
        yield Code(f"autotuner cluster check {cluster.name}" + (f" --server {server}" if server else ""))
    if has_buttons and cluster.engine not in (LOCAL, SIMULATED):
        yield (Figure("by hand", _button(cluster, checks)),)
    for place, check in enumerate(checks):
        yield Folded(summary=tuple(_check(check)), blocks=tuple(_happened(check)), id=check.id, is_open=place == 0)


def _button(cluster: Cluster, checks: Sequence[CheckRun]) -> Button:
    if checks and not checks[0].state.is_finished:
        return Button(words="Cancel", path=f"clusters/{cluster.name}/cancel", says=f"Cancel the check {checks[0].id}")
    return Button(words="Check now", path=f"clusters/{cluster.name}/check", says=f"Check {cluster.name} now")


def _check(check: CheckRun) -> Iterator[Cell]:
    yield State(check.state)
    yield Quiet(moment(check.created_at))
    if check.finished_at is not None:
        took = number(check.finished_at - (check.started_at or check.created_at), "duration")
        yield Quiet(f"· {took}")
    elif check.is_cancel_requested:
        yield Quiet("· cancel requested")
    if check.request.request.quick:
        yield Quiet("· quick")
    if check.created_by:
        yield Quiet(f"· by {check.created_by}")


def _happened(check: CheckRun) -> Iterator[Block]:
    found, began = check.progress, check.started_at or check.created_at
    if found.engine:
        jobs = "".join(f" · job {job.handle} {job.phase}" for job in found.jobs)
        yield Lines(items=((Quiet(f"{check.request.cluster.engine}: {found.engine}{jobs}"),),), is_list=False)
    if not check.lines:
        yield Lines(items=("No worker has started it yet.",), is_quiet=True)
        return
    columns = (Column("after"), Column("what happened", is_number=False, may_wrap=True))
    rows = [(Quantity(value=round(max(0.0, one.at - began)), unit="s"), one.text) for one in check.lines]
    yield Table(columns=columns, rows=rows, is_compact=True)


def check_queued(check: CheckRun) -> Report:
    """Return a report that says that the check of a cluster is queued, and which programs can run it."""
    return Report(headline=f"{check.id} is {check.state}; a service or `autotuner worker` runs it", sections=())
