from __future__ import annotations

import pytest

from autotuner.core.trial import EngineJobPhase
from autotuner.launch.engines.slurm.states import JobRow, phase_of, read_sacct, read_squeue

# as squeue 22.05.8 printed it
FROM_22_05 = """\
2|PENDING|Priority|bar||odd
1|RUNNING|None|n[1-2]|foo
3|FAILED|NonZeroExitCode|n1|t-1-0-0
"""

# sacct --parsable2 has the same fields in the same order; states of 25.05 among them
FROM_SACCT = """\
41|CANCELLED by 1000|None|None assigned|t-1-0-0
41.batch|COMPLETED||n1|batch
42|POWER_UP_NODE|None|n1|t-2-0-0
43|NODE_FAIL|None|gpu[001-016]|t-3-0-0
"""


def test_squeue_is_read_line_by_line() -> None:
    assert list(read_squeue(FROM_22_05)) == [
        JobRow(number=2, name="|odd", state="PENDING", reason="Priority", nodes="bar"),
        JobRow(number=1, name="foo", state="RUNNING", nodes="n[1-2]"),
        JobRow(number=3, name="t-1-0-0", state="FAILED", reason="NonZeroExitCode", nodes="n1"),
    ]


def test_of_what_sacct_lists_the_jobs_count_and_not_their_steps() -> None:
    rows = list(read_sacct(FROM_SACCT))
    assert [(row.number, row.state, row.nodes) for row in rows] == [
        (41, "CANCELLED", ""),
        (42, "POWER_UP_NODE", "n1"),
        (43, "NODE_FAIL", "gpu[001-016]"),
    ]


def test_words_that_are_no_job_are_passed_over() -> None:
    assert (
        list(
            read_squeue(
                "squeue: warning: something\n\n|||\nx|y|z\n²|RUNNING|None|n1|t\n" + "9" * 5000 + "|RUNNING|None|n1|t\n"
            )
        )
        == []
    )


@pytest.mark.parametrize(
    ("state", "phase"),
    [
        ("PENDING", EngineJobPhase.QUEUED),
        ("REQUEUED", EngineJobPhase.QUEUED),
        ("RUNNING", EngineJobPhase.RUNNING),
        ("COMPLETING", EngineJobPhase.RUNNING),
        ("SUSPENDED", EngineJobPhase.RUNNING),
        ("STAGE_OUT", EngineJobPhase.RUNNING),
        ("COMPLETED", EngineJobPhase.ENDED),
        ("DEADLINE", EngineJobPhase.ENDED),
        ("REVOKED", EngineJobPhase.LOST),
        ("LAUNCH_FAILED", EngineJobPhase.LOST),
    ],
)
def test_every_state_has_its_meaning(state: str, phase: EngineJobPhase) -> None:
    assert phase_of(state) is phase


def test_a_state_that_nobody_knows_yet_is_no_end() -> None:
    assert phase_of("EXPEDITING") is EngineJobPhase.RUNNING
