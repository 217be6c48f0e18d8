"""``autotuner profile``: microbenchmarks of this machine, which predictions for it use from then on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from autotuner.cli.options import Json

if TYPE_CHECKING:
    from autotuner.ports import Store

__all__ = ["profile"]


def profile(
    name: Annotated[
        str, typer.Option("--name", help="'local' is used for this machine; others as the cluster 'profile:NAME'.")
    ] = "local",
    show: Annotated[bool, typer.Option("--show", help="Print the stored profiles and measure nothing.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Tiny sizes: tries the way, not the device.")] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Measure only where no profile of that name describes these devices yet.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Measure this machine's products, attention, memory, collectives and, on cores, Python; predictions use that."""
    from autotuner.bootstrap import build
    from autotuner.cli.console import console, print_json
    from autotuner.cli.service import migrate_if_embedded
    from autotuner.cli.views.profile import profile_view
    from autotuner.domain.jobs.profile import describes
    from autotuner.domain.wire import to_dict
    from autotuner.launch.detect import detect_cluster
    from autotuner.launch.torch_jobs import profile_of
    from autotuner.machine import host_hash
    from autotuner.settings import Settings

    settings = Settings(num_workers=0, log_level="warning")
    migrate_if_embedded(settings)
    application = build(settings)
    try:
        profiles = list(application.store.list_profiles())
        if not show:
            _refuse_cluster(application.store, name)
            cluster, host = detect_cluster(), host_hash()
            kept = [one for one in profiles if keep and one.name == name and describes(one, cluster, host=host)]
            profiles = kept or [profile_of(cluster, name=name, measured_at=application.clock.now(), quick=quick)]
            if not kept:
                application.store.save_profile(profiles[0])
    finally:
        application.close()
    if as_json:
        return print_json({"items": to_dict(profiles)})
    console().print(profile_view(profiles, details=not keep))
    return None


def _refuse_cluster(store: Store, name: str) -> None:
    """A stored cluster's name means what a check measured of it."""
    from autotuner.errors import InvalidInput

    if any(cluster.name == name for cluster in store.list_clusters()):
        raise InvalidInput("--name", name, f"is a stored cluster, which `autotuner cluster check {name}` measures")
