from __future__ import annotations

import pytest

from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.workload import Workload
from autotuner.costmodel.predict import predict_one
from autotuner.search.explain.what_if import what_if
from tests.builders import h100_cluster, llama_70b

JOB = Job(model=llama_70b(), cluster=h100_cluster(), workload=Workload(seq_len=8192, global_batch_size=1024))


def test_a_layout_that_can_run_is_predicted_with_the_memory_of_each_stage() -> None:
    answer = what_if(Layout.parse("tp8 pp4 1f1b mb1 sp flash bf16"), JOB)
    assert answer.legal is not None
    assert answer.reasons == ()
    assert answer.legal.explanation.prediction == predict_one(answer.layout, JOB)
    peaks = [memory.total_bytes for memory in answer.legal.explanation.stages]
    assert len(peaks) == 4
    assert max(peaks) == pytest.approx(answer.legal.explanation.prediction.memory.total_bytes)


def test_a_layout_that_cannot_says_why_and_what_near_it_can() -> None:
    answer = what_if(Layout.parse("tp16 pp4 1f1b mb1 flash bf16"), JOB)
    assert answer.legal is None
    assert "kv-heads-per-tensor-rank" in [reason.rule for reason in answer.reasons]
    assert answer.nearest is not None
    assert answer.nearest.tensor_parallel_degree == 8


def test_what_only_other_software_runs_is_predicted_and_said_to_be_untried() -> None:
    answer = what_if(Layout.parse("fsdp64 mb1 flash nvfp4"), JOB)
    assert answer.legal is None  # this hardware has no nvfp4
    answer = what_if(Layout.parse("dp64 mb1 recompute-selective offload flash bf16"), JOB)
    assert answer.legal is not None
    assert answer.legal.untried == ()
    answer = what_if(Layout.parse("dp16 pp4 zbv mb1 recompute-selective flash bf16"), JOB)
    assert answer.legal is not None
    assert "trial-recomputes-selectively-once" in [reason.rule for reason in answer.legal.untried]
