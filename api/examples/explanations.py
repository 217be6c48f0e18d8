"""Examples of explained layouts."""

from __future__ import annotations

from typing import Any

from api.examples.catalog import model
from api.examples.predictions import job_body, layout, prediction
from api.schemas import BandwidthCurve, LayoutExplanation, LinkTimelines, TrialParts, TrialTimelines
from autotuner.core.choices import GradientSync
from autotuner.core.layout import Layout
from autotuner.core.link import LinkHealth
from autotuner.core.rules.rule import Reason
from autotuner.core.timeline import RankSeconds, RankTimeline, StepTimeline
from autotuner.search.explain.bandwidth_curve import BandwidthSpan, BandwidthWay
from autotuner.search.explain.explanation import Change, Explanation, MemoryPart, Refusal, TimePart
from autotuner.search.explain.link_timelines import Message, SlowHop
from autotuner.search.explain.step_parts import StepPart, StepParts
from autotuner.search.explain.timeline import PredictedTimeline
from autotuner.search.explain.trial_parts import StagePeak


def explanation_bodies() -> dict[str, Any]:
    """Bodies of ``POST /explanations``."""
    return {"one layout": job_body() | {"layout": {"tensor_parallel_degree": 8, "sequence_parallel": True}}}


def explanation() -> LayoutExplanation:
    """A layout with its longest part, its largest part, and a change of each kind."""
    predicted, limit_bytes = prediction(), 80e9
    time = TimePart(part="matrix_s", seconds=3.0, share=0.645, limit="the rate at which h100-sxm multiplies matrices")
    memory = MemoryPart(part="activations_bytes", num_bytes=18e9, share=0.444)
    micro_batch = Change(
        change="micro-batch 1 → 2",
        layout=Layout(tensor_parallel_degree=8, sequence_parallel=True, micro_batch_size=2),
        prediction=predicted,
        saved_share=0.02,
        excess_bytes=0.0,
        sentence="micro-batch 1 → 2 removes 2 % tensor communication: step 4.65 s → 4.56 s ± 12 %; fits, 98 % sure",
    )
    rule = Reason(
        rule="kv-heads-per-tensor-rank",
        field="tensor_parallel_degree",
        message="8 kv heads do not split over 16 tensor ranks",
        nearest=8,
    )
    return LayoutExplanation.of(
        Explanation(
            layout=layout(),
            prediction=predicted,
            time=(time,),
            step=_step(None),
            memory=(memory,),
            stages=(predicted.memory,),
            limit_bytes=limit_bytes,
            margin_bytes=limit_bytes - predicted.memory.total_bytes,
            helpful=(micro_batch,),
            too_large=(),
            illegal=(Refusal(change="tensor 8 → 16, replicate 2 → 1", reason=rule),),
            caveats=("dense models on nemo with h100-sxm were compared with 63 measured runs",),
        ),
        model(),
    )


def bandwidth_curve() -> BandwidthCurve:
    """Replicas of two nodes, and what DeMo would make of them: at 10 Mbit/s, 1 Gbit/s and 100 Gbit/s."""
    full = Layout(data_parallel_replicate_degree=16)
    demo = Layout(data_parallel_replicate_degree=16, gradient_sync=GradientSync.DEMO)
    return BandwidthCurve(
        bandwidths_bytes_per_s=(1.25e6, 1.25e8, 1.25e10),
        own_bytes_per_s=1.25e9,
        own="replicas",
        ways=(
            BandwidthWay(
                name="replicas",
                label=str(full),
                layout=full,
                is_lossy=False,
                fits=True,
                step_s=(380.0, 6.1, 2.2),
                faster_below_bytes_per_s=None,
            ),
            BandwidthWay(
                name="demo",
                label=str(demo),
                layout=demo,
                is_lossy=True,
                fits=True,
                step_s=(31.0, 2.7, 2.4),
                faster_below_bytes_per_s=1.9e9,
            ),
        ),
        spans=(
            BandwidthSpan(way="demo", low_bytes_per_s=1.25e6, high_bytes_per_s=1.9e9),
            BandwidthSpan(way="replicas", low_bytes_per_s=1.9e9, high_bytes_per_s=1.25e10),
        ),
        sentences=(
            "shortest predicted step by what a rank has of the network between nodes, 10 Gbit/s here: demo below "
            "15.2 Gbit/s, replicas above",
        ),
    )


def parts() -> TrialParts:
    """A trial's longest pass on both sides, and the memory of its one stage."""
    memory = prediction().memory
    peak = StagePeak(
        stage=0, predicted=memory, predicted_bytes=memory.total_bytes, measured_bytes=41_200_000_000, rank=3
    )
    step = _step(2.9)
    return TrialParts(is_small=False, step=step, largest_loss=step.largest_loss, stages=(peak,), limit_bytes=80e9)


def _step(measured_s: float | None) -> StepParts:
    """One part of a step, which a prediction alone has not measured."""
    backward = StepPart(
        name="backward",
        kind="backward",
        predicted_s=2.7,
        measured_s=measured_s,
        limit="the same work for gradients of inputs and weights",
    )
    rank = None if measured_s is None else 3
    return StepParts(parts=(backward,), predicted_s=2.7, measured_s=measured_s, recompute_s=0.0, rank=rank)


def timelines() -> TrialTimelines:
    """A step of two micro-batches on one rank, which took a little longer than it was predicted to."""
    predicted = PredictedTimeline(timeline=_timeline(1.0), predicted_s=2.7, apart=0.0)
    return TrialTimelines(is_small=False, predicted=predicted, measured=_timeline(1.1))


def _timeline(factor: float) -> StepTimeline:
    ends_s = tuple(round(factor * seconds, 3) for seconds in (0.0, 0.44, 1.32, 1.76, 2.64, 2.7))
    lane = RankTimeline(
        rank=0,
        pipeline_rank=0,
        actions=("0F0", "0B0", "0F1", "0B1", "optimizer"),
        start_s=ends_s[:-1],
        end_s=ends_s[1:],
        seconds=RankSeconds(
            forward_s=round(factor * 0.88, 3), backward_s=round(factor * 1.76, 3), optimizer_s=round(factor * 0.06, 3)
        ),
    )
    return StepTimeline(step_s=ends_s[-1], num_micro_batches=2, num_ranks=1, ranks=(lane,))


def link_timelines() -> LinkTimelines:
    """Two stages and one micro-batch, whose messages are 60 ms late."""
    link = LinkHealth(ends=(0, 1), delay_s=0.06, source="assumed")
    says = "link 0_1 60 ms late"
    return LinkTimelines(
        links=(link,),
        hops=(SlowHop(ranks=(0, 1), links=(link,), delay_s=0.06, says=says),),
        healthy=PredictedTimeline(timeline=_two_stages(0.0), predicted_s=0.12, apart=0.0),
        slow=PredictedTimeline(timeline=_two_stages(0.06), predicted_s=0.24, apart=0.0),
        messages=(
            Message(action="0F0", from_rank=0, to_rank=1, sent_s=0.02, received_s=0.08, is_late=True),
            Message(action="1B0", from_rank=1, to_rank=0, sent_s=0.14, received_s=0.2, is_late=True),
        ),
        added_s=0.12,
        cost=f"With {says}, the step is predicted to take 240 ms instead of 120 ms, 100 % more. That is 2 times the "
        "delay of one message. 2 of 2 messages over it are waited for.",
    )


def _two_stages(delay_s: float) -> StepTimeline:
    """One micro-batch through two stages; a forward takes 20 ms, a backward 40."""
    step_s = round(0.12 + 2 * delay_s, 6)
    seconds = RankSeconds(forward_s=0.02, backward_s=0.04, idle_s=round(step_s - 0.06, 6))
    begins = ((0.0, round(0.08 + 2 * delay_s, 6)), (round(0.02 + delay_s, 6), round(0.04 + delay_s, 6)))
    lanes = tuple(
        RankTimeline(
            rank=rank,
            pipeline_rank=rank,
            actions=(f"{rank}F0", f"{rank}B0"),
            start_s=starts,
            end_s=(round(starts[0] + 0.02, 6), round(starts[1] + 0.04, 6)),
            seconds=seconds,
        )
        for rank, starts in enumerate(begins)
    )
    return StepTimeline(step_s=step_s, num_micro_batches=1, num_ranks=2, ranks=lanes)
