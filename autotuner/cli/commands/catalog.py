"""``autotuner catalog``, ``stacks``, ``trainers`` and ``engines``: what there is to choose from."""

from __future__ import annotations

from autotuner.cli.options import Json, Server


def catalog(server: Server = None, as_json: Json = False) -> None:
    """List the accelerators, models and training software that commands accept by name.

    Example: autotuner catalog
    """
    from autotuner.cli.client import connect
    from autotuner.cli.console import show
    from autotuner.report.catalog import catalog_report

    with connect(server, keep=False) as service:
        accelerators, models, stacks = service.list_accelerators(), service.list_catalog_models(), service.list_stacks()
    found = {"accelerators": accelerators, "models": models, "stacks": stacks}
    show(found, lambda _: catalog_report(accelerators.items, models.items, stacks.items), as_json=as_json)


def stacks(server: Server = None, as_json: Json = False) -> None:
    """List the training software that --stack accepts, with the measured runs behind each one.

    Example: autotuner stacks
    """
    from autotuner.cli.client import connect
    from autotuner.cli.console import show
    from autotuner.report.catalog import stacks_report

    with connect(server, keep=False) as service:
        show(service.list_stack_profiles(), lambda found: stacks_report(found.items), as_json=as_json)


def trainers(server: Server = None, as_json: Json = False) -> None:
    """List the registered trainers, and the layout options that a sweep can search with each one.

    Example: autotuner trainers
    """
    from autotuner.cli.client import connect
    from autotuner.cli.console import show
    from autotuner.report.service import trainers_report

    with connect(server, keep=False) as service:
        show(service.list_trainers(), lambda found: trainers_report(found.items), as_json=as_json)


def engines(server: Server = None, as_json: Json = False) -> None:
    """List the engines that can run trials, and ask each one whether it is ready.

    Example: autotuner engines
    """
    from autotuner.cli.client import connect
    from autotuner.cli.console import show
    from autotuner.report.service import engines_report

    with connect(server, keep=False) as service:
        show(service.list_engines(), lambda found: engines_report(found.items), as_json=as_json)
