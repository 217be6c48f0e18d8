"""Jobs of engines in words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.domain.runs.engine_job import EngineJob, EngineJobPhase
from autotuner.search.text.jobs import engine_in_words, job_in_words, latest

WAITS = EngineJob(engine="slurm", name="job", handle="4711", submitted_at=100.0, detail="Resources")
RUNS = replace(WAITS, phase=EngineJobPhase.RUNNING, detail="", started_at=135.0)


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (WAITS, "slurm job 4711 waits: Resources, 1 min 40 s"),
        (RUNS, "slurm job 4711 runs, 1 min 5 s, after 35 s in the queue"),
        (replace(RUNS, started_at=100.0), "slurm job 4711 runs, 1 min 40 s"),
        (
            replace(RUNS, phase=EngineJobPhase.ENDED, ended_at=150.0),
            "slurm job 4711 ran 15 s, after 35 s in the queue",
        ),
        (
            replace(WAITS, phase=EngineJobPhase.ENDED, detail="", ended_at=150.0),
            "slurm job 4711 ended before it ran, after 50 s in the queue",
        ),
        (
            replace(RUNS, phase=EngineJobPhase.LOST, detail="node2 does not answer", ended_at=150.0),
            "slurm job 4711 was lost: node2 does not answer, 15 s after it began",
        ),
        (
            replace(WAITS, phase=EngineJobPhase.LOST, detail="ImagePullBackOff", ended_at=100.0),
            "slurm job 4711 never ran: ImagePullBackOff",
        ),
    ],
    ids=["waits", "runs", "at-once", "ended", "cancelled", "lost", "never"],
)
def test_a_job_says_where_it_stands_and_how_long(job: EngineJob, words: str) -> None:
    assert job_in_words(job, 200.0) == words


def test_the_job_to_tell_of_is_the_one_that_goes_on() -> None:
    over = replace(RUNS, phase=EngineJobPhase.LOST, ended_at=150.0)
    assert latest([over, WAITS]) == WAITS
    assert latest([WAITS, over]) == WAITS
    assert latest([over]) == over
    assert latest([]) is None


def test_a_cluster_of_another_engine_says_whose() -> None:
    assert engine_in_words("local", "") == ""
    assert engine_in_words("slurm", "batch") == "by slurm, queue batch"
    assert engine_in_words("simulated", "") == "simulated"
