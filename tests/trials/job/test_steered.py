"""A real trial whose pipeline is watched, and planned around the link that its fault trace delays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autotuner.core.choices import P2PTransport, PipelineSchedule
from autotuner.core.fault_trace import FaultTrace
from autotuner.core.measurement import LinkEvent, LinkEventKind, Measurement
from autotuner.core.trial_spec import TrialSettings
from autotuner.launch.local import LocalLauncher
from autotuner.launch.zygote import Forks
from tests.builders import cpu_cluster, cpu_layout
from tests.trials.launching import Watcher, spec
from trials.job.steered import powers

LATE_S = 0.4
"""Far longer than a pass, however busy the machine is: half of it was never seen without the late link."""

SETTINGS = TrialSettings(
    warmup_steps=1, max_warmup_steps=1, measured_steps=6, max_measured_steps=6, profiled_steps=0, max_foreign_share=1.0
)


def events(folder: Path, forks: Forks, *, late_s: float = LATE_S, **layout: Any) -> tuple[LinkEvent, ...]:
    """Of two stages whose link is late for four steps, as the measurement has them and the watcher heard them."""
    watcher = Watcher()
    asked = spec(
        "steered",
        SETTINGS,
        cluster=cpu_cluster(2),
        fault_trace=FaultTrace.parse(f"0;0_1;{late_s}\n4;0_1;0", num_steps=8),
        layout=cpu_layout(pipeline_parallel_degree=2, micro_batch_size=2, **layout),
    )
    outcome = LocalLauncher(folder, forks).run(asked, watcher)
    assert isinstance(outcome, Measurement), outcome
    assert tuple(watcher.link_events) == outcome.link_events
    return outcome.link_events


def test_an_adaptive_pipeline_is_planned_around_a_slow_link_and_back_again(tmp_path: Path, forks: Forks) -> None:
    planned = {"pipeline_schedule": PipelineSchedule.ADAPTIVE, "p2p_transport": P2PTransport.DELEGATED}
    for late_s in (LATE_S, 4 * LATE_S, 16 * LATE_S):  # beside long passes a short delay is not worth another plan
        found = events(tmp_path / str(late_s), forks, late_s=late_s, **planned, num_delegates=4)
        replans = [event.delegated for event in found if event.kind is LinkEventKind.REPLANNED]
        if any(replans):
            break
    slow = next(event for event in found if event.kind is LinkEventKind.LINK_SLOW and event.delay_s > late_s / 2)
    assert slow.stages == (0, 1)
    assert slow.step in range(8, 11)  # seven steps go before the trace, whose link is late in the next four
    assert (any(replans), replans[-1:]) == (True, [False])
    assert any(event.kind is LinkEventKind.LINK_RECOVERED and event.step > slow.step for event in found)


@pytest.mark.oracle  # a second real trial; what a controller may do is held below
def test_a_fixed_schedule_under_a_trace_is_watched_and_left_alone(tmp_path: Path, forks: Forks) -> None:
    found = events(tmp_path, forks, pipeline_schedule=PipelineSchedule.ONE_F_ONE_B)
    assert any(event.kind is LinkEventKind.LINK_SLOW and event.delay_s > LATE_S / 2 for event in found)
    assert not any(event.kind is LinkEventKind.REPLANNED for event in found)


@pytest.mark.parametrize(
    ("layout", "may"),
    [
        ({"pipeline_schedule": PipelineSchedule.ADAPTIVE}, (True, False, False)),
        (
            {"pipeline_schedule": PipelineSchedule.ADAPTIVE, "p2p_transport": P2PTransport.DELEGATED},
            (True, True, False),
        ),
        ({"p2p_transport": P2PTransport.DELEGATED}, (False, False, True)),
        ({}, (False, False, False)),
    ],
)
def test_a_layout_says_what_may_be_done_to_its_pipeline(layout: dict[str, Any], may: tuple[bool, bool, bool]) -> None:
    found = powers(cpu_layout(pipeline_parallel_degree=2, **layout))
    assert (found.may_replan, found.may_delegate, found.is_always_delegated) == may
