"""``autotuner profile``: microbenchmarks of this machine, which predictions for it use from then on."""

from __future__ import annotations

from typing import Annotated

import typer

from autotuner.cli.options import Json

__all__ = ["profile"]


def profile(
    name: Annotated[
        str, typer.Option("--name", help="'local' is used for this machine; others as the cluster 'profile:NAME'.")
    ] = "local",
    show: Annotated[bool, typer.Option("--show", help="Print the stored profiles and measure nothing.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Tiny sizes: tries the way, not the device.")] = False,
    as_json: Json = False,
) -> None:
    """Measure this machine's products, attention, memory and collectives; predictions for it use that."""
    from autotuner.bootstrap import build
    from autotuner.cli.console import console, print_json
    from autotuner.cli.service import migrate_if_embedded
    from autotuner.cli.views.profile import profile_view
    from autotuner.domain.wire import to_dict
    from autotuner.launch.detect import detect_cluster
    from autotuner.launch.torch_jobs import profile_of
    from autotuner.settings import Settings

    settings = Settings(num_workers=0, log_level="warning")
    migrate_if_embedded(settings)
    application = build(settings)
    try:
        if not show:
            taken = profile_of(detect_cluster(), name=name, measured_at=application.clock.now(), quick=quick)
            application.store.save_profile(taken)
        profiles = [taken] if not show else list(application.store.list_profiles())
    finally:
        application.close()
    if as_json:
        return print_json({"items": to_dict(profiles)})
    console().print(profile_view(profiles))
    return None
