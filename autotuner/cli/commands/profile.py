"""``autotuner profile``: microbenchmarks of this machine, which predictions for it use from then on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from autotuner.cli.options import Json
from autotuner.core.errors import InvalidInput

if TYPE_CHECKING:
    from autotuner.core.profile import DeviceProfile
    from autotuner.store.sql import Store


def profile(
    name: Annotated[
        str,
        typer.Option(
            "--name", help="Name of the profile. The cluster local uses the profile local, and profile:NAME any other."
        ),
    ] = "local",
    show: Annotated[bool, typer.Option("--show", help="Print the stored profiles, and measure nothing.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Use tiny sizes, to try the command itself.")] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Measure only if no profile of that name describes these devices.")
    ] = False,
    links: Annotated[
        bool,
        typer.Option("--links", help="Measure each link separately. If a profile is stored, measure only the links."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Measure the compute, memory and communication speed of this machine for predictions.

    Example: autotuner profile
    """
    from autotuner.cli.console import console
    from autotuner.cli.console import show as print_answer
    from autotuner.core.listed import Listed
    from autotuner.core.profile import profiled
    from autotuner.launch.this_machine import detect_cluster
    from autotuner.report.cluster import links_report
    from autotuner.report.machine import profiles_report
    from autotuner.report.terminal import render
    from autotuner.service.build import build
    from autotuner.service.settings import Settings
    from autotuner.store.schema import migrate_if_embedded

    if links and keep:
        raise InvalidInput("--keep", keep, "must be left out of --links, which measures links whatever is stored")

    settings = Settings(num_workers=0, log_level="warning")
    migrate_if_embedded(settings.database_url)
    application = build(settings)
    try:
        profiles = list(application.store.list_profiles())
        if not show:
            _refuse_cluster(application.store, name, links=links)
            known = _known(profiles, name)
            if keep and known:
                profiles = [known]
            else:
                profiles = [_taken(known, name, at=application.clock.now(), quick=quick, links=links)]
                application.store.save_profile(profiles[0])
    finally:
        application.close()
    if links and not as_json:
        found = [(one, profiled(detect_cluster(), one)) for one in profiles if not one.cluster]
        console().print(render(links_report(found)))
    else:
        report = profiles_report(profiles, details=not keep)
        print_answer(Listed.whole(profiles), lambda _: report, as_json=as_json)


def _known(profiles: list[DeviceProfile], name: str) -> DeviceProfile | None:
    """What is stored of these very devices under a name."""
    from autotuner.core.profile import describes
    from autotuner.host.machine import host_hash
    from autotuner.launch.this_machine import detect_cluster

    cluster, host = detect_cluster(), host_hash()
    return next((one for one in profiles if one.name == name and describes(one, cluster, host=host)), None)


def _taken(known: DeviceProfile | None, name: str, *, at: float, quick: bool, links: bool) -> DeviceProfile:
    """A new profile; where only links are wanted of a machine that has one, that with its links measured again."""
    from autotuner.core.profile import keeping_links
    from autotuner.launch.this_machine import detect_cluster, profile_of, remeasured_links

    cluster = detect_cluster()
    if known and links:
        return remeasured_links(known, cluster, measured_at=at, quick=quick)
    taken = profile_of(cluster, name=name, measured_at=at, quick=quick, links=links)
    return keeping_links(taken, known) if known else taken


def _refuse_cluster(store: Store, name: str, *, links: bool) -> None:
    """A stored cluster's name means what a check measured of it."""
    if any(cluster.name == name for cluster in store.list_clusters()):
        check = f"autotuner cluster check {name}" + (" --links" if links else "")
        raise InvalidInput("--name", name, f"is a stored cluster, which `{check}` measures")
