"""SteeredPipeline: a trial's pipeline whose schedule is planned from measurements and adapts to slow links."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from autotuner.core.choices import P2PTransport, PipelineSchedule
from autotuner.core.layout import Layout
from autotuner.core.measurement import LinkEvent
from autotuner.core.placement import Place
from autotuner.core.trial_spec import TrialSpec
from autotuner.schedules.planner import plan
from autotuner.schedules.simulate import PassTimes
from autotuner.training.pipelines.controller import (
    ControlGroup,
    Controller,
    Powers,
    choose,
    forwards_late,
    noticed_delays_s,
    pass_times,
)
from autotuner.training.pipelines.detector import RankObservation
from autotuner.training.pipelines.pipeline import ResilientPipeline


class Gathered(Protocol):
    """The interface of a function that exchanges a value among all ranks, such as ``all_gather_object``.

    It takes this rank's value and returns the values of all ranks, in the order of the ranks.
    """

    def __call__(self, own: Any, /) -> list[Any]:
        """Return the values of all ranks."""


def powers(layout: Layout, most_in_flight: tuple[int, ...] | None = None) -> Powers:
    """Return the changes that the controller of a pipeline may make between the steps of a trial with this layout.

    It may plan a new schedule only if the schedule of the layout is adaptive. It may use delegates (processes that send
    messages for a rank) only if the layout has them.

    Args:
        layout: The layout of the trial.
        most_in_flight: Largest number of micro-batches in flight that fit in memory, by stage; None: no limit.
    """
    is_adaptive = layout.pipeline_schedule == PipelineSchedule.ADAPTIVE
    has_delegates = layout.p2p_transport == P2PTransport.DELEGATED
    return Powers(
        may_replan=is_adaptive,
        may_delegate=is_adaptive and has_delegates,
        is_always_delegated=has_delegates and not is_adaptive,
        num_delegates=layout.num_delegates,
        extra_slack=layout.extra_slack,
        most_in_flight=most_in_flight,
    )


class SteeredPipeline:
    """This rank's pipeline, with a controller that changes the schedule between steps if links become slow.

    All ranks make the same changes at the same time.

    Args:
        spec: The specification of the trial.
        place: The place of this rank in the layout.
        pipeline: The stages of this rank.
        gathered: Function that exchanges values among all ranks.
    """

    def __init__(self, spec: TrialSpec, place: Place, pipeline: ResilientPipeline, gathered: Gathered) -> None:
        self._spec, self._place, self._pipeline, self._gathered = spec, place, pipeline, gathered
        self._controller: Controller | None = None

    @classmethod
    def of(
        cls, spec: TrialSpec, place: Place, pipeline: ResilientPipeline | None, gathered: Gathered
    ) -> SteeredPipeline | None:
        """Return the controlled pipeline of a trial, or None if the pipeline cannot change between steps.

        It can change only if the schedule is adaptive or the trial replays a trace of link faults.
        """
        is_adaptive = spec.layout.pipeline_schedule == PipelineSchedule.ADAPTIVE
        if pipeline is None or not (is_adaptive or spec.fault_trace is not None):
            return None
        return cls(spec, place, pipeline, gathered)

    def begin(self, most_in_flight: Callable[[int], int]) -> None:
        """Start to watch the links for delays. If the schedule is adaptive, first plan it from the latest step's times.

        Args:
            most_in_flight: Function that takes the number of micro-batches in flight in the latest step, and returns
                the number that fits in this rank's memory.
        """
        layout = self._spec.layout
        if layout.pipeline_schedule != PipelineSchedule.ADAPTIVE:
            self._controller = self._controlled(powers(layout))
            return
        in_flight = self._pipeline.schedule.peak_in_flight()[self._pipeline.rank]
        own = RankObservation.of(self._pipeline)
        gathered = self._gathered((own, self._known_delays_s(), most_in_flight(in_flight)))
        observations: list[RankObservation] = [observation for observation, _, _ in gathered]
        delays_s = map(max, noticed_delays_s(observations), *(known_s for _, known_s, _ in gathered))
        most: dict[int, int] = {}
        for observation, _, num in gathered:
            most[observation.stage] = min(num, most.get(observation.stage, num))
        self._plan(pass_times(observations, tuple(delays_s)), powers(layout, tuple(most[one] for one in sorted(most))))

    def _known_delays_s(self) -> Sequence[float]:
        """Return the injected delay of each link of the pipeline, by the stage before it.

        Small ones may not be measurable.
        """
        num_links, conditions = len(self._pipeline.schedule.ranks) - 1, self._pipeline.conditions
        return [conditions.between(link, link + 1).delay_s for link in range(num_links)]

    def after_step(self, number: int) -> tuple[LinkEvent, ...]:
        """Return the events that the controller noticed in step ``number``, such as a slow link.

        The result is empty before ``begin`` is called.
        """
        return () if self._controller is None else self._controller.after_step(number)

    def _plan(self, times: PassTimes, may: Powers) -> None:
        """Plan the schedule for the present links.

        The plan for nominal links is kept for the time when they recover.
        """
        healthy = replace(times, send_s=(0.0,) * len(times.send_s))
        num_micro_batches = self._pipeline.schedule.num_micro_batches
        slack, most = may.extra_slack, may.most_in_flight
        plain = plan(healthy, num_micro_batches, extra_slack=slack, most_in_flight=most).schedule
        late = forwards_late(times.send_s, times.forward_s[:-1], (0,) * len(times.send_s))
        chosen = choose(times, late, plain, plain, may)
        self._pipeline.replan(chosen.schedule)
        if chosen.is_delegated != self._pipeline.transport.is_delegated:
            self._pipeline.switch(delegated=chosen.is_delegated)
        self._controller = self._controlled(may, plain=plain, known_s=times.send_s)

    def _controlled(self, may: Powers, **keywords: Any) -> Controller:
        layout, place = self._spec.layout, self._place
        shards = layout.data_parallel_shard_degree * layout.context_parallel_degree
        return Controller(
            self._pipeline,
            ControlGroup(timeout_s=self._spec.settings.timeout_s),
            pipeline_index=(place.replica * shards + place.shard) * layout.tensor_parallel_degree + place.tensor,
            num_pipelines=layout.world_size // layout.pipeline_parallel_degree,
            powers=may,
            **keywords,
        )
