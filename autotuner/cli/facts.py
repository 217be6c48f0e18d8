"""Commands about facts, from ``autotuner catalog`` and ``autotuner support`` to ``audit`` and ``profile``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from autotuner.cli.complete import completing
from autotuner.cli.console import console, open_service, progress, show, tell
from autotuner.cli.flags import Json, Server
from autotuner.connections import answering
from autotuner.core.cluster import Cluster
from autotuner.core.errors import InvalidInput
from autotuner.core.listed import Listed

if TYPE_CHECKING:
    from autotuner.core.profile import DeviceProfile
    from autotuner.store.sql import Store


def catalog(server: Server = None, as_json: Json = False) -> None:
    """List the accelerators, models and training software that commands accept by name.

    Example: autotuner catalog
    """
    from autotuner.report.catalog import catalog_report

    with answering(server, opens_store=False) as asked:
        accelerators, models, stacks = asked.list_accelerators(), asked.list_catalog_models(), asked.list_stacks()
    found = {"accelerators": accelerators, "models": models, "stacks": stacks}
    show(found, lambda _: catalog_report(accelerators.items, models.items, stacks.items), as_json=as_json)


def stacks(server: Server = None, as_json: Json = False) -> None:
    """List the training software that --stack accepts, with its versions and its error on new sources.

    The command ``support`` shows the measured runs behind each one.

    Example: autotuner stacks
    """
    from autotuner.report.catalog import stacks_report

    with answering(server, opens_store=False) as asked:
        found = asked.list_stack_profiles()
    show(found, lambda found: stacks_report(found.items), as_json=as_json)


def support(
    model: Annotated[
        str | None,
        typer.Argument(
            help="Name of a model. Leave it out for all kinds of models.", autocompletion=completing("model")
        ),
    ] = None,
    accelerator: Annotated[
        str | None,
        typer.Argument(
            help="Name of an accelerator. Leave it out for all of them.", autocompletion=completing("accelerator")
        ),
    ] = None,
    stack: Annotated[
        str | None,
        typer.Option(
            "--stack", help="Training software. Leave it out for all of it.", autocompletion=completing("stack")
        ),
    ] = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Show what is measured, borrowed and assumed in predictions, by accelerator and training software.

    With a model, an accelerator and --stack, it shows one pair in detail.

    Example: autotuner support llama-3-8b h100 --stack nemo
    """
    from autotuner.report.support import support_report

    with answering(server, opens_store=False) as asked, progress("comparing with measured runs"):
        found = asked.read_support(model=model, accelerator=accelerator, stack=stack)
    show(found, support_report, as_json=as_json)


def trainers(server: Server = None, as_json: Json = False) -> None:
    """List the registered trainers, and the layout options that a sweep can search with each one.

    Example: autotuner trainers
    """
    from autotuner.report.service import trainers_report

    tell(
        server,
        lambda service: service.list_trainers(),
        lambda found: trainers_report(found.items),
        as_json=as_json,
        keep=False,
    )


def engines(server: Server = None, as_json: Json = False) -> None:
    """List the engines that can run trials, and ask each one whether it is ready.

    Example: autotuner engines
    """
    from autotuner.report.service import engines_report

    tell(
        server,
        lambda service: service.list_engines(),
        lambda found: engines_report(found.items),
        as_json=as_json,
        keep=False,
    )


def calibrate(
    on: Annotated[
        str | None,
        typer.Option("--on", help="Show only the accelerators of this cluster (local, h100:64)."),
    ] = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Show how much finished trials correct the predictions, by accelerator, links and software.

    The column "error before" is the error of predictions without these trials.
    The column "left out" is the error for a job after learning from other jobs.

    Example: autotuner calibrate --on h100:64
    """
    from autotuner.report.calibration import calibrations_report

    tell(
        server,
        lambda service: service.list_calibrations(cluster=on),
        lambda found: calibrations_report(found.items),
        as_json=as_json,
    )


def audit(
    caller: Annotated[str | None, typer.Option("--caller", help="List only the requests of this caller.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=500, help="Largest number of entries to print.")] = 50,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """List the requests that changed something or were refused, newest first.

    A service with a login shows them only to an admin.

    Example: autotuner audit --limit 20
    """
    from autotuner.report.service import audit_report

    with open_service(server) as service:
        found = service.read_audit(caller=caller, limit=limit)
    show(found, lambda _: audit_report(found, caller or ""), as_json=as_json)


def profile(
    name: Annotated[
        str,
        typer.Option(
            "--name", help="Name of the profile. The cluster local uses the profile local, and profile:NAME any other."
        ),
    ] = "local",
    shows: Annotated[bool, typer.Option("--show", help="Print the stored profiles, and measure nothing.")] = False,
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
    from autotuner.core.profile import DeviceProfile, profiled
    from autotuner.launch.this_machine import detect_cluster
    from autotuner.report.cluster import links_report
    from autotuner.report.machine import profiles_report
    from autotuner.report.terminal import render
    from autotuner.service.build import build
    from autotuner.service.settings import Settings
    from autotuner.store.schema import migrate_if_embedded

    if links and keep:
        raise InvalidInput(
            "--keep",
            keep,
            "cannot be used together with --links, because --links always makes a new measurement; leave out one of "
            "the two",
        )

    settings = Settings(num_workers=0, log_level="warning")
    with progress("opening the database"):
        migrate_if_embedded(settings.database_url)
        application = build(settings)
    try:
        profiles = list(application.store.descriptions.stored(DeviceProfile).items)
        if not shows:
            _refuse_cluster(application.store, name, links=links)
            known = _known(profiles, name)
            if keep and known:
                profiles = [known]
            else:
                with progress("measuring this machine"):
                    profiles = [_taken(known, name, at=application.clock.now(), quick=quick, links=links)]
                application.store.descriptions.save(profiles[0])
    finally:
        application.close()
    if links and not as_json:
        found = [(one, profiled(detect_cluster(), one)) for one in profiles if not one.cluster]
        console().print(render(links_report(found)))
    else:
        report = profiles_report(profiles, details=not keep)
        show(Listed.whole(profiles), lambda _: report, as_json=as_json)


def _known(profiles: list[DeviceProfile], name: str) -> DeviceProfile | None:
    """Return the stored profile with this name, if it describes exactly these devices."""
    from autotuner.core.profile import describes
    from autotuner.host.machine_facts import host_hash
    from autotuner.launch.this_machine import detect_cluster

    cluster, host = detect_cluster(), host_hash()
    return next((one for one in profiles if one.name == name and describes(one, cluster, host=host)), None)


def _taken(known: DeviceProfile | None, name: str, *, at: float, quick: bool, links: bool) -> DeviceProfile:
    """Return a new profile of this machine.

    If only the links are wanted and the machine has a profile, only its links are measured again.
    """
    from autotuner.core.profile import keeping_links
    from autotuner.launch.this_machine import detect_cluster, profile_of, remeasured_links

    cluster = detect_cluster()
    if known and links:
        return remeasured_links(known, cluster, measured_at=at, quick=quick)
    taken = profile_of(cluster, name=name, measured_at=at, quick=quick, links=links)
    return keeping_links(taken, known) if known else taken


def _refuse_cluster(store: Store, name: str, *, links: bool) -> None:
    """Raise an error if a stored cluster has this name, since only its own check may set its measurements."""
    if name in store.descriptions.names(Cluster):
        check = f"autotuner cluster check {name}" + (" --links" if links else "")
        rule = f"is the name of a stored cluster: give another name, or measure that cluster with `{check}`"
        raise InvalidInput("--name", name, rule)
