"""LinkFaults: makes a rank's links behave as a cluster's link health and a fault trace say, between steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
import torch.distributed as dist

from autotuner.core.layout import Layout
from autotuner.core.link import LinkHealth
from autotuner.core.placement import Place
from autotuner.core.trial_spec import TrialSpec
from trials.distributed.mesh import Grid
from trials.faults.late_collectives import LateCollectives
from trials.faults.links import Links, pipeline_conditions
from trials.pipelines.pipeline import PlannedPipeline


class LinkFaults:
    """What befalls the links of one rank: of its pipeline, and of the groups that it computes one tensor with.

    Collectives over the whole pipeline, such as the sum of the loss, are none of them: what trainers exchange there can
    wait for the next step.
    """

    def __init__(self, links: Links, grid: Grid, pipeline: PlannedPipeline | None, device: torch.device) -> None:
        self._links = links
        self._layout, self._place = grid.layout, place_on(grid)
        self._pipeline = pipeline
        self._collectives = LateCollectives(_groups(grid), device, seed=0)
        self.meet(())

    @classmethod
    def of(
        cls, spec: TrialSpec, grid: Grid, pipeline: PlannedPipeline | None, device: torch.device
    ) -> LinkFaults | None:
        """Those of a trial; None where all its links are as they really are, all the time."""
        if not spec.has_slow_links:
            return None
        assert spec.cluster is not None, "only a cluster has slow links"
        return cls(Links.of(spec.cluster), grid, pipeline, device)

    def meet(self, faults: Sequence[LinkHealth]) -> None:
        """Have the next steps meet these faults, beside what the cluster's links are like all along."""
        links = self._links.befallen_by(faults)
        self._collectives.meet(links)
        if self._pipeline is not None:
            self._pipeline.conditions = pipeline_conditions(links, self._layout, self._place)


def place_on(grid: Grid) -> Place:
    """Where this rank lies on the grid of its layout."""
    return Place(*(grid.position(name) for name in ("pp", "dp_replicate", "shard", "tp")))


def _groups(grid: Grid) -> Iterator[dist.ProcessGroup]:
    """The tensor, data, context and expert groups of this rank, of more than one rank."""
    layout = grid.layout
    for name in ("dp_replicate", "shard", "tp"):
        yield from _several(grid.axis(name).get_group())
    if layout.context_parallel_degree > 1:
        yield from _several(grid.context.get_group())
    if layout.data_parallel_shard_degree == 1:
        yield from _several(grid.replicas.get_group())
    yield from _expert_groups(grid, layout)


def _expert_groups(grid: Grid, layout: Layout) -> Iterator[dist.ProcessGroup]:
    if layout.expert_parallel_degree > 1:
        for name in ("expert_shard", "expert"):
            yield from _several(grid.experts(name).get_group())


def _several(group: dist.ProcessGroup) -> Iterator[dist.ProcessGroup]:
    if group.size() > 1:
        yield group
