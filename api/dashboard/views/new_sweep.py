"""What the page that asks for a sweep shows beside the form's own values."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Self

from api.dashboard.new_sweep.given import Given
from api.dashboard.words import predicted_mfu
from autotuner.catalog.hardware import accelerators
from autotuner.catalog.models import models
from autotuner.core.cluster import LOCAL, SIMULATED
from autotuner.core.layout import OPTIONS
from autotuner.core.sweep import SweepRequest
from autotuner.launch.simulation import SCENARIOS
from autotuner.search.sweep_preview import SweepPreview
from autotuner.service.build import App

_NUM_SHOWN = 6
"""Rules that are told one by one; the others rarely matter, and are counted together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What selects of the form offer; a value that was given and is not among these stays, to be refused by name."""

    catalog_models: tuple[str, ...]
    stored_models: tuple[str, ...]
    accelerators: tuple[str, ...]
    clusters: tuple[str, ...]
    trainers: tuple[str, ...]
    engines: tuple[tuple[str, str], ...]
    """Where trials of a catalog cluster may run, as values with their words."""

    @classmethod
    def of(cls, app: App, given: Given) -> Self:
        """What there is, and what was given."""
        stored = tuple(one.name for one in app.store.list_models())
        return cls(
            catalog_models=_with(given.text("model"), sorted(models()), stored),
            stored_models=stored,
            accelerators=_with(given.text("cluster.accelerator"), sorted(accelerators())),
            clusters=_with(given.text("cluster.stored"), (one.name for one in app.store.list_clusters())),
            trainers=_with(given.text("trainer"), app.trainers),
            engines=_engines(app),
        )


def _with(given: str, known: Iterable[str], elsewhere: Iterable[str] = ()) -> tuple[str, ...]:
    known = tuple(known)
    return known if not given or given in known or given in elsewhere else (*known, given)


def _engines(app: App) -> tuple[tuple[str, str], ...]:
    offered = [(LOCAL, "this machine")]
    for name, registered in app.engines.items():
        queues = registered.settings.queues or ("",)
        offered += [(f"{name}/{queue}" if queue else name, f"{name} {queue}".strip()) for queue in queues]
    offered += [(f"{SIMULATED}/{name}", f"simulated, {name}") for name in SCENARIOS]
    return tuple(offered)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outfall:
    """Layouts that fall out of a space, for one reason."""

    subject: str
    """What the rule is about; empty where it is several rules."""
    message: str
    num_layouts: int
    share: float
    """Of all candidates."""


def outfalls(preview: SweepPreview) -> tuple[Outfall, ...]:
    """Why layouts are illegal, the most frequent reasons alone; the others together at the end."""
    if preview.sieved is None:
        return ()
    total, falls = preview.sieved.num_candidates or 1, preview.sieved.falls
    told = [
        Outfall(
            subject=OPTIONS[fall.field].label if fall.field in OPTIONS else fall.field,
            message=fall.message,
            num_layouts=fall.num_layouts,
            share=fall.num_layouts / total,
        )
        for fall in falls[:_NUM_SHOWN]
    ]
    if rest := falls[_NUM_SHOWN:]:
        count = sum(fall.num_layouts for fall in rest)
        noun = "rule" if len(rest) == 1 else "rules"
        told.append(Outfall(subject="", message=f"{len(rest)} other {noun}", num_layouts=count, share=count / total))
    return tuple(told)


def job_facts(request: SweepRequest) -> tuple[str, str]:
    """What model and cluster are, in a line each."""
    model, cluster = request.job.model, request.job.cluster
    experts = f", {model.experts.num_experts} experts" if model.experts else ""
    shape = f"{model.num_layers} layers, hidden {model.hidden_size}, {model.num_kv_heads} kv heads{experts}"
    nodes = "1 node" if cluster.num_nodes == 1 else f"{cluster.num_nodes} nodes"
    links = (
        f"{cluster.intra_node_link.name}, {cluster.inter_node_link.name}"
        if cluster.num_nodes > 1
        else (cluster.intra_node_link.name)
    )
    return shape, f"{nodes} of {cluster.accelerators_per_node} {cluster.accelerator.name}; {links}"


def summary(complaints: Collection[object], preview: SweepPreview | None) -> str:
    """The answer in a line, for where there is no room for more."""
    if complaints:
        return "1 thing to mend" if len(complaints) == 1 else f"{len(complaints)} things to mend"
    if preview is None:
        return ""
    table = preview.predicted
    if not table.items:
        return f"none of {table.num_legal:,} fits"
    return f"{table.num_fitting:,} fit, best {predicted_mfu(table.items[0].predicted)} MFU"
