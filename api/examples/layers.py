"""Examples of layers of communication."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from api.examples.predictions import job_body
from api.schemas import LayerReport, SweepLayers
from autotuner.core.choices import CollectiveHierarchy, ShardLevel
from autotuner.core.layout import Layout
from autotuner.core.option import CommunicationLayer
from autotuner.search.explain.layers import LayerGain, options_of_layer


def layers_bodies() -> dict[str, Any]:
    """Bodies of ``POST /layer-reports``."""
    return {"a job": job_body()}


def layer_report() -> LayerReport:
    """Five layers, one of which gives something."""
    sharded = Layout(data_parallel_shard_degree=32, shard_level=ShardLevel.PARAMETERS)
    plain = LayerGain(
        layer=CommunicationLayer.STRATEGY,
        options=("data_parallel_replicate_degree", "data_parallel_shard_degree"),
        layout=sharded,
        label=str(sharded),
        step_time_s=1.31,
        value=0.5127,
        gain=0.0,
        change="",
        num_layouts=5208,
        sentence=f"strategy: the best is {sharded}",
    )
    tasks = replace(plain, layer=CommunicationLayer.TASKS, sentence="task scheduling: nothing found is better")
    two_level = replace(sharded, collective_hierarchy=CollectiveHierarchy.TWO_LEVEL)
    change = "hierarchy of collectives flat → two level"
    collectives = replace(
        plain,
        layer=CommunicationLayer.COLLECTIVES,
        options=options_of_layer(CommunicationLayer.COLLECTIVES),
        layout=two_level,
        label=str(two_level),
        step_time_s=1.2,
        value=0.5597,
        gain=0.0917,
        change=change,
        num_layouts=20_832,
        sentence=f"collectives: {change} gives 9 % more",
    )
    rest = (
        replace(
            collectives,
            layer=layer,
            options=options_of_layer(layer),
            gain=0.0,
            change="",
            sentence=f"{layer}: nothing found is better",
        )
        for layer in (CommunicationLayer.FLOWS, CommunicationLayer.NETWORK)
    )
    return LayerReport.of((plain, tasks, collectives, *rest), ("predicted, never compared on such a network",))


def sweep_layers() -> SweepLayers:
    """The same, before trials tell anything."""
    return SweepLayers(predicted=layer_report(), measured=None)
