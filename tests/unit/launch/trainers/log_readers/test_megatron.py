from __future__ import annotations

import math

import pytest

from autotuner.core.units import MIB
from autotuner.launch.trainers.log_readers.megatron import MegatronLog
from autotuner.launch.trainers.reported import ReportedMemory, ReportedStep
from tests.unit.launch.trainers.log_readers.specs import spec


def iteration(
    step: int, *, ms: float = 812.5, loss: str = " lm loss: 9.876543E+00 |", prefix: str = "", nan: int = 0
) -> str:
    return (
        f"{prefix} iteration {step:8}/     100 | consumed samples: {128 * step:12} |"
        f" elapsed time per iteration (ms): {ms} | learning rate: 1.500000E-05 | global batch size:   128 |{loss}"
        f" loss scale: 1.0 | grad norm: 3.210 | number of skipped iterations:   0 | number of nan iterations: {nan:3} |"
    )


@pytest.mark.parametrize(
    "prefix",
    ["", " [2026-01-02 03:04:05.678901]", " [2026-01-02 03:04:05]", "[default7]: [2026-01-02 03:04:05.678901]"],
)
def test_an_iteration_has_its_time_and_its_loss(prefix: str) -> None:
    step = MegatronLog(spec()).read(iteration(1, prefix=prefix))
    assert step == ReportedStep(step=1, step_time_s=0.8125, loss=9.876543)


def test_throughput_and_losses_of_experts_change_nothing() -> None:
    loss = " lm loss: 2.021530E+00 | load_balancing_loss: 1.087362E+00 |"
    line = iteration(2, loss=loss).replace(" learning", " throughput per GPU (TFLOP/s/GPU): 401.2 | learning")
    step = MegatronLog(spec()).read(line)
    assert isinstance(step, ReportedStep)
    assert (step.loss, step.step_time_s) == (2.02153, 0.8125)
    before = MegatronLog(spec()).read(iteration(2, loss=" load_balancing_loss: 1.08E+00 | lm loss: 2.021530E+00 |"))
    assert isinstance(before, ReportedStep)
    assert before.loss == 2.02153


def test_figures_are_means_over_the_iterations_since_the_last_line() -> None:
    log = MegatronLog(spec())
    steps = [log.read(iteration(number)) for number in (10, 20, 30)]
    assert [(step.step, step.num_steps) for step in steps if isinstance(step, ReportedStep)] == [
        (10, 10),
        (20, 10),
        (30, 10),
    ]


def test_a_loss_that_is_not_printed_is_unknown_unless_iterations_had_none() -> None:
    log = MegatronLog(spec())
    skipped, nan = log.read(iteration(1, loss="")), log.read(iteration(2, loss="", nan=1))
    assert isinstance(skipped, ReportedStep)
    assert skipped.loss is None
    assert isinstance(nan, ReportedStep)
    assert nan.loss is not None
    assert math.isnan(nan.loss)


def test_memory_is_that_of_the_rank_that_prints_it() -> None:
    line = (
        "[Rank 3] (after 2 iterations) memory (MB) | allocated: 10240.50 | max allocated: 20480.25 |"
        " reserved: 22528.00 | max reserved: 22528.00"
    )
    assert MegatronLog(spec()).read(line) == ReportedMemory(rank=3, peak_bytes=round(20480.25 * MIB))


def test_lines_of_gpt_neox_are_read() -> None:
    line = (
        " samples/sec: 7.799 | iteration       34/   10000 | elapsed time per iteration (ms): 4103.1 |"
        " learning rate: 2.111E-06 | approx flops per GPU: 112.9TFLOPS | lm_loss: 1.118665E+01 |"
        " number of skipped iterations:   0 | number of nan iterations:   0 |"
    )
    step = MegatronLog(spec()).read(line)
    assert isinstance(step, ReportedStep)
    assert (step.step, step.loss, step.step_time_s) == (34, 11.18665, 4.1031)


def test_lines_of_nemo_count_from_zero() -> None:
    log = MegatronLog(spec())
    line = (
        "Training epoch 0, iteration {0}/99 | lr: 5.6e-06 | global_batch_size: 32 | global_step: {0} |"
        " reduced_train_loss: 2.778 | train_step_timing in s: 0.189 | consumed_samples: 928 | val_loss: 4.1"
    )
    assert log.read(line.format(0)) == ReportedStep(step=0, step_time_s=0.189, loss=2.778)
    assert log.read(line.format(1)) == ReportedStep(step=1, step_time_s=0.189, loss=2.778)
    untimed = log.read("Training epoch 0, iteration 2/9 | lr: 0.0006 | reduced_train_loss: 9.21")
    assert untimed == ReportedStep(step=2, loss=9.21)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "training ...",
        "time (ms) | forward-compute: 193.77 | backward-compute: 73.02 | optimizer: 63.01",
        " validation loss at iteration 10 | lm loss value: 2.3E+00 | lm loss PPL: 9.97E+00 |",
        "Step Time : 0.81s GPU utilization: 401.2MODEL_TFLOP/s/GPU",
        "  saving checkpoint at iteration      10 to /checkpoints in torch_dist format",
    ],
)
def test_other_lines_say_nothing(line: str) -> None:
    assert MegatronLog(spec()).read(line) is None
