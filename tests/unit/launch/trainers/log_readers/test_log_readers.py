from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import pytest

from autotuner.core.units import GIB, MIB
from autotuner.launch.trainers.logs import READERS, DeepspeedLog, MegatronLog, TorchtitanLog, TransformersLog
from autotuner.launch.trainers.progress import ReportedMemory, ReportedStep
from tests.unit.launch.trainers.log_readers.specs import spec

# ---------------------------------------------------------------- deepspeed
HEAD = "[2026-01-02 03:04:05,678] [INFO]"


def progress(step: int) -> str:
    return f"{HEAD} [logging.py:123:log_dist] [Rank 0] step={step}, skipped=0, lr=[0.001], mom=[(0.9, 0.999)]"


def throughput(step: int, samples_per_s: float = 320.0) -> str:
    return (
        f"{HEAD} [timer.py:264:stop] epoch=0/micro_step={4 * step}/global_step={step}, RunningAvgSamplesPerSec=331.49,"
        f" CurrSamplesPerSec={samples_per_s}, MemAllocated=0.41GB, MaxMemAllocated=0.47GB"
    )


def timers(fwd: float = 13.5, *, names: tuple[str, str] = ("fwd", "bwd")) -> str:
    first, second = names
    return (
        f"[Rank 0] time (ms) | {first}: {fwd} | {second}: 18.25 | {second}_inner: 10.67 | {second}_allreduce: 7.73"
        " | step: 6.25"
    )


def micro_timers() -> str:
    return "[Rank 0] time (ms) | fwd_microstep: 13.70 | bwd_microstep: 18.47 | step_microstep: 6.91"


def steps(lines: Iterable[str]) -> list[ReportedStep]:
    log = DeepspeedLog(spec())
    return [step for line in lines if (step := log.read(line))]


def test_throughput_of_all_ranks_gives_the_time_of_steps_once_it_is_known() -> None:
    assert steps([progress(10), throughput(10)]) == [
        ReportedStep(step=10, rank=0, step_time_s=128 / 320.0, peak_bytes=round(0.47 * GIB))
    ]
    found = steps([progress(1), progress(2), progress(3), throughput(3), progress(4), throughput(4)])
    assert [(step.step, step.step_time_s is None) for step in found] == [(1, True), (2, True), (3, False), (4, False)]
    found = steps([progress(0), progress(10), progress(20), progress(30)])
    assert found == [ReportedStep(step=10, rank=0, num_steps=10), ReportedStep(step=20, rank=0, num_steps=10)]


@pytest.mark.parametrize("names", [("fwd", "bwd"), ("forward", "backward")])
def test_timers_alone_are_counted_and_summed(names: tuple[str, str]) -> None:
    found = steps(
        [progress(0), micro_timers(), micro_timers(), timers(names=names), micro_timers(), timers(14.5, names=names)]
    )
    assert [(step.step, step.step_time_s) for step in found] == [(1, 0.038), (2, 0.039)]


def test_timers_tell_of_steps_without_throughput_and_of_those_that_were_announced() -> None:
    lines = [timers(), progress(2), throughput(2), micro_timers(), timers(), timers(), timers()]
    assert [(step.step, step.peak_bytes is not None) for step in steps(lines)] == [
        (1, False),
        (2, True),
        (3, False),
        (4, False),
    ]
    assert [step.step for step in steps([progress(5), timers(), progress(6), timers()])] == [5, 6]


def test_a_pipelines_line_is_a_mean_with_a_loss() -> None:
    lines = [
        progress(10),
        "steps: 10 loss: 2.1274 iter time (s): 0.023 samples/sec: 5565.217",
        progress(20),
        "steps: 20 loss: 2.0123 iter time (s): 12.345 samples/sec: 10.369",
    ]
    assert steps(lines) == [
        ReportedStep(step=10, rank=0, step_time_s=128 / 5565.217, num_steps=10, loss=2.1274),
        ReportedStep(step=20, rank=0, step_time_s=12.345, num_steps=10, loss=2.0123),
    ]


# ---------------------------------------------------------------- what says nothing
@pytest.mark.parametrize(
    ("name", "line"),
    [
        *((name, "") for name in READERS),
        ("deepspeed", "[2026-01-02 03:04:05,678] [INFO] [config.py:1003:print]   steps_per_print .............. 10"),
        ("deepspeed", "[INFO] [timer.py:189:stop] 0/40, SamplesPerSec=83.486, MaxMemAllocated=9.02GB"),
        ("deepspeed", "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768"),
        ("deepspeed", "rank=0 time (ms) | compute_norm: 2.99 | overflow_check: 8.91 | basic_step: 19.65"),
        ("megatron-lm", "training ..."),
        ("megatron-lm", "time (ms) | forward-compute: 193.77 | backward-compute: 73.02 | optimizer: 63.01"),
        ("megatron-lm", " validation loss at iteration 10 | lm loss value: 2.3E+00 | lm loss PPL: 9.97E+00 |"),
        ("megatron-lm", "Step Time : 0.81s GPU utilization: 401.2MODEL_TFLOP/s/GPU"),
        ("megatron-lm", "  saving checkpoint at iteration      10 to /checkpoints in torch_dist format"),
        ("torchtitan", "[titan] 2026-01-02 03:04:05,678 - root - INFO - Training starts at step 1"),
        ("torchtitan", "[titan] 2026-01-02 - INFO - validate step: 10  loss:  6.1  memory: 9.46GiB(64.99%)  tps: 7"),
        ("torchtitan", "[titan] 2026-01-02 03:04:05,678 - root - WARNING - 2 CUDA OOM errors thrown."),
        ("transformers", "{'train_runtime': '0.196', 'train_samples_per_second': '244.9', 'train_loss': '6.252'}"),
        ("transformers", "{'eval_loss': 1.5, 'eval_runtime': 2.5, 'epoch': 1.0}"),
        ("transformers", "***** Running training *****"),
        # tests/fuzz/logs.py found these
        ("megatron-lm", "[Rank 0] memory (MB) | max allocated: 1..2"),
    ],
)
def test_a_line_of_anything_else_says_nothing(name: str, line: str) -> None:
    assert READERS[name](spec()).read(line) is None


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("torchtitan", "step: 1  loss: nan  memory: 1e400GiB  tps: 0"),
        ("deepspeed", "steps: 10 loss: 1 iter time (s): inf samples/sec: 0"),
        ("deepspeed", "[Rank 0] time (ms) | fwd: nan | bwd: 1 | step: 1"),
        ("megatron-lm", " iteration 1/1 | elapsed time per iteration (ms): 1e999 | lm loss: inf |"),
    ],
)
def test_a_table_without_figures_has_no_step_time(name: str, line: str) -> None:
    step = READERS[name](spec()).read(line)
    assert step is None or (isinstance(step, ReportedStep) and step.step_time_s is None)


@pytest.mark.parametrize("name", READERS)
def test_a_line_of_a_million_characters_is_passed_over(name: str) -> None:
    reader = READERS[name](spec())
    words = "step: 1  loss: 1 |1/2 [|9|{'loss': '9| iteration 1/2 | |global_step=1, |[Rank 0] "
    for piece in words.split("|"):
        reader.read(piece * (10**6 // max(1, len(piece))))


# ---------------------------------------------------------------- megatron
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
    losses = [log.read(iteration(number, loss="", nan=nan)) for number, nan in ((1, 0), (2, 1))]
    assert [step.loss for step in losses if isinstance(step, ReportedStep)] == [
        None,
        pytest.approx(math.nan, nan_ok=True),
    ]


def test_memory_is_that_of_the_rank_that_prints_it() -> None:
    line = (
        "[Rank 3] (after 2 iterations) memory (MB) | allocated: 10240.50 | max allocated: 20480.25 |"
        " reserved: 22528.00 | max reserved: 22528.00"
    )
    assert MegatronLog(spec()).read(line) == ReportedMemory(rank=3, peak_bytes=round(20480.25 * MIB))


def test_other_software_writes_lines_that_are_read_too() -> None:
    line = (
        " samples/sec: 7.799 | iteration       34/   10000 | elapsed time per iteration (ms): 4103.1 |"
        " learning rate: 2.111E-06 | approx flops per GPU: 112.9TFLOPS | lm_loss: 1.118665E+01 |"
        " number of skipped iterations:   0 | number of nan iterations:   0 |"
    )
    step = MegatronLog(spec()).read(line)
    assert isinstance(step, ReportedStep)
    assert (step.step, step.loss, step.step_time_s) == (34, 11.18665, 4.1031)
    log = MegatronLog(spec())
    line = (
        "Training epoch 0, iteration {0}/99 | lr: 5.6e-06 | global_batch_size: 32 | global_step: {0} |"
        " reduced_train_loss: 2.778 | train_step_timing in s: 0.189 | consumed_samples: 928 | val_loss: 4.1"
    )
    assert log.read(line.format(0)) == ReportedStep(step=0, step_time_s=0.189, loss=2.778)
    assert log.read(line.format(1)) == ReportedStep(step=1, step_time_s=0.189, loss=2.778)
    untimed = log.read("Training epoch 0, iteration 2/9 | lr: 0.0006 | reduced_train_loss: 9.21")
    assert untimed == ReportedStep(step=2, loss=9.21)


# ---------------------------------------------------------------- torchtitan
def printed(step: int, *, prefix: str = "", loss: str = " 7.94336", memory: str = "40.12", tps: str = "1,234") -> str:
    return (
        f"{prefix}[titan] 2026-01-02 03:04:05,678 - root - INFO - step: {step:2}  loss: {loss}  grad_norm:  2.7038"
        f"  memory: {memory}GiB(50.15%)  tps: {tps}  tflops: 98.76  mfu: 31.20%"
    )


def test_torchrun_says_the_rank_and_a_step_may_follow_from_tokens_per_second() -> None:
    step = TorchtitanLog(spec()).read(printed(1))
    assert step == ReportedStep(step=1, step_time_s=128 * 4096 / 8 / 1234, loss=7.94336, peak_bytes=round(40.12 * GIB))
    log = TorchtitanLog(spec())
    ranks = [log.read(printed(1, prefix=prefix)) for prefix in ("[rank0]:", "[default3]:", "")]
    assert [step.rank for step in ranks if step] == [0, 3, None]


def test_every_rank_may_print_a_step_and_those_without_the_last_stage_know_no_loss() -> None:
    log = TorchtitanLog(spec())
    printed_steps = [1, 1, 10, 10, 20, 10, 20]  # a rank may be a line late
    steps = [log.read(printed(step)) for step in printed_steps]
    assert [(step.step, step.num_steps) for step in steps if step] == [
        (1, 1), (1, 1), (10, 9), (10, 9), (20, 10), (10, 9), (20, 10),
    ]  # fmt: skip
    losses = [TorchtitanLog(spec()).read(printed(1, loss=loss)) for loss in ("-1.00000", "     nan")]
    assert [step.loss for step in losses if step] == [None, pytest.approx(math.nan, nan_ok=True)]


def test_memory_is_the_highest_of_a_rank_so_far_though_each_line_begins_anew() -> None:
    log = TorchtitanLog(spec())
    peaks = [
        log.read(printed(1, prefix="[rank0]:", memory="40.00")),
        log.read(printed(1, prefix="[rank1]:", memory="10.00")),
        log.read(printed(2, prefix="[rank0]:", memory="30.00")),
    ]
    assert [step.peak_bytes for step in peaks if step] == [40 * GIB, 10 * GIB, 40 * GIB]


def test_colours_and_missing_figures_change_nothing() -> None:
    line = printed(12)
    for label, colour in (("step:", 31), ("loss:", 32), ("memory:", 36), ("tps:", 34), ("mfu:", 35)):
        line = line.replace(label, f"\x1b[{colour}m{label}")
    assert TorchtitanLog(spec()).read(f"{line}\x1b[39m") == TorchtitanLog(spec()).read(printed(12))
    line = (
        "[titan] 2025-06-16 22:30:50,322 - root - INFO - step: 200  loss:  6.1384  memory: 49.66GiB(52.28%)  tps: 5,856"
    )
    step = TorchtitanLog(spec()).read(f"{line}  tflops: 339.16  mfu: N/A")
    assert step is not None
    assert (step.step, step.loss) == (200, 6.1384)


# ---------------------------------------------------------------- transformers
def texts(loss: str) -> str:
    return f"{{'loss': '{loss}', 'grad_norm': '0.7303', 'learning_rate': '0.001', 'epoch': '0.1667'}}"


def numbers(loss: str) -> str:
    return f"{{'loss': {loss}, 'learning_rate': 0.00028994575745834946, 'epoch': 0.22}}"


def bar(step: int) -> str:
    return f"\r  4%|▎         | {step}/240 [00:12<01:07,  1.87it/s]"


def transformers_steps(lines: Iterable[str]) -> list[ReportedStep]:
    log = TransformersLog(spec())
    return [step for line in lines if (step := log.read(line))]


@pytest.mark.parametrize("shape", [texts, numbers])
def test_losses_are_read_from_texts_and_from_numbers_though_one_is_no_number(shape: Callable[[str], str]) -> None:
    assert transformers_steps([shape("6.251"), shape("6.25e-05")]) == [
        ReportedStep(step=1, loss=6.251),
        ReportedStep(step=2, loss=6.25e-05),
    ]
    assert [step.loss for step in transformers_steps([shape("nan")])] == [pytest.approx(math.nan, nan_ok=True)]


def test_the_bar_tells_how_many_steps_lie_between_lines() -> None:
    blank = "\r" + 40 * " " + "\r"
    lines = [
        bar(0) + bar(9) + blank + texts("6.2"),
        bar(10) + bar(11) + bar(19) + blank + texts("6.1"),
        bar(20) + bar(29) + blank + texts("6.0"),
    ]
    assert [(step.step, step.num_steps) for step in transformers_steps(lines)] == [(1, 1), (20, 10), (30, 10)]
    lines = [texts("6.2"), bar(5), bar(6), texts("6.1"), bar(10), texts("6.0")]
    assert [(step.step, step.num_steps) for step in transformers_steps(lines)] == [(1, 1), (10, 5), (15, 5)]
