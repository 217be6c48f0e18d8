"""Measurements of ranks, and the FLOP formulas of a trial against torch's own count of what really ran."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from autotuner.core.choices import AttentionKernel, GradientSync, PipelineSchedule, Recompute
from autotuner.core.layout import Layout
from autotuner.core.measurement import Measurement, PhaseTimes, StepReport
from autotuner.core.measuring import Peak, model_flop, recomputed_flop, step_rates
from autotuner.core.trial_spec import TrialSpec
from autotuner.trials.measurement.environment import CpuTime
from autotuner.trials.measurement.measure import RankRecord, measurement
from autotuner.trials.model.attention import kernel_context
from autotuner.trials.model.decoder import Decoder, materialise
from autotuner.trials.options import recomputed
from tests.builders import cpu_layout, tiny_model
from tests.trials.specs import ddp, trial_spec

# ---------------------------------------------------------------- measure

PEAK = Peak(flop_per_s=2e11, source="data sheet")
TIMES_S = (9.0, 1.0, 2.0, 3.0, 4.0)  # the first is the warm-up


def phases(forward_backward_s: float, gradient_sync_s: float) -> PhaseTimes:
    return PhaseTimes(forward_backward_s=forward_backward_s, gradient_sync_s=gradient_sync_s, optimizer_s=0.1)


def record(host: str = "a", own_s: float = 3.0, **changes: object) -> RankRecord:
    cpu = CpuTime(machine_busy_s=8.0, machine_total_s=20.0, own_s=own_s)
    value = RankRecord(
        host=host,
        cpu=cpu,
        peak_bytes=100,
        reserved_bytes=200,
        phases=(phases(1.0, 0.5), phases(2.0, 0.5), phases(1.0, 0.5), phases(2.0, 0.5)),
        compile_s=0.0,
        power_w=None,
    )
    return replace(value, **changes)  # type: ignore[arg-type]  # the tests name its fields


def steps(spec: TrialSpec, times_s: Sequence[float] = TIMES_S) -> list[StepReport]:
    rates = [step_rates(spec, PEAK, time_s) for time_s in times_s]
    return [
        StepReport(step=n, is_warmup=n == 0, step_time_s=time_s, loss=5.0 - n, tokens_per_s=tokens_per_s, mfu=mfu)
        for n, (time_s, (tokens_per_s, mfu)) in enumerate(zip(times_s, rates, strict=True))
    ]


def measured(spec: TrialSpec, *records: RankRecord, times_s: Sequence[float] = TIMES_S) -> Measurement:
    records = records or (record(phases=tuple(phases(1.0, 0.5) for _ in times_s[1:])),)
    return measurement(spec, PEAK, steps(spec, times_s), records, environment={"torch": "2.13.0"})


def test_the_step_time_is_the_median_of_the_measured_steps_and_its_spread_that_of_their_quartiles() -> None:
    result = measured(trial_spec())
    assert result.step_time_s == 2.5
    assert result.step_time_spread_s == 1.5
    assert result.num_steps == 4
    assert result.num_warmup_steps == 1
    assert result.losses == (5.0, 4.0, 3.0, 2.0, 1.0), "the warm-up's too"


def test_the_interval_of_the_median_needs_six_steps_and_a_single_one_has_no_spread() -> None:
    assert measured(trial_spec()).step_time_interval_s is None
    assert measured(trial_spec(), times_s=(9.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0)).step_time_interval_s == 2.5
    single = measured(trial_spec(), times_s=TIMES_S[:2])
    assert (single.step_time_s, single.step_time_spread_s) == (1.0, 0.0)


def test_mfu_is_the_model_flop_over_what_all_ranks_could_do_in_the_step() -> None:
    spec = trial_spec()
    model_flop = spec.model.model_flop_per_token(32) * 8 * 32
    result = measured(spec)
    assert result.mfu == pytest.approx(model_flop / (2.5 * 2e11))
    assert result.model_flop_per_s == pytest.approx(model_flop / 2.5)
    assert result.tokens_per_s == 8 * 32 / 2.5


def test_hfu_adds_what_is_computed_again() -> None:
    plain = measured(trial_spec())
    spec = trial_spec(cpu_layout(micro_batch_size=8, recompute=Recompute.FULL))
    result = measured(spec)
    assert plain.hfu == plain.mfu == result.mfu
    assert result.hfu / result.mfu == pytest.approx(1 + recomputed_flop(spec) / model_flop(spec))


def test_each_phase_is_the_mean_of_the_rank_that_was_slowest_in_it() -> None:
    other = record(phases=(phases(0.5, 2.0), phases(0.5, 3.0)) * 2)
    result = measured(trial_spec(), record(), other)
    assert result.phases == PhaseTimes(forward_backward_s=1.5, gradient_sync_s=2.5, optimizer_s=0.1)


def test_the_foreign_share_leaves_out_the_ranks_of_this_host_only() -> None:
    result = measured(trial_spec(), record(own_s=3.0), record(own_s=4.0), record(host="b", own_s=7.0))
    assert result.foreign_cpu_share == pytest.approx((8.0 - 7.0) / 20.0)


def test_memory_is_listed_by_rank_compilation_is_the_longest_and_power_the_mean_of_reporting_ranks() -> None:
    one, other = (
        record(peak_bytes=7, compile_s=3.0, power_w=600.0),
        record(peak_bytes=9, reserved_bytes=12, power_w=500.0),
    )
    result = measured(trial_spec(), one, other, record())
    assert (result.peak_bytes, result.reserved_bytes) == ((7, 9, 100), (200, 12, 200))
    assert (result.compile_s, result.power_w) == (3.0, 550.0)
    assert measured(trial_spec()).power_w is None


def averaging(period: int) -> Layout:
    return ddp(2, gradient_sync=GradientSync.DILOCO, sync_period=period, micro_batch_size=4)


def test_every_step_bears_its_part_of_what_an_average_of_parameters_takes_and_sends() -> None:
    plain, average = phases(1.0, 0.0), phases(1.0, 4.0)
    rank = record(phases=(plain, plain, average, plain), payload_bytes=(0, 0, 800, 0))
    result = measured(trial_spec(averaging(4)), rank, times_s=(9.0, 1.0, 1.0, 5.0, 1.0))
    assert result.step_time_s == 1.0 + 4.0 / 4
    assert result.num_steps == 4
    assert result.phases is not None
    assert result.phases.gradient_sync_s == 4.0 / 4
    assert result.sync_payload_bytes == 800 / 4


def test_the_payload_is_that_of_the_rank_that_sends_most_and_of_no_rank_where_gradients_are_summed() -> None:
    less, more = record(payload_bytes=(10,) * 4), record(payload_bytes=(12,) * 4)
    assert measured(trial_spec(ddp(2, gradient_sync=GradientSync.DEMO)), less, more).sync_payload_bytes == 12
    assert measured(trial_spec()).sync_payload_bytes is None


# ---------------------------------------------------------------- flop

FLASH, MATH = AttentionKernel.FLASH, AttentionKernel.MATH


def flash_forward(q: Any, k: Any, v: Any, *_: object, **__: object) -> int:
    return int(sdpa_flop_count(q, k, v))  # type: ignore[no-untyped-call]


def flash_backward(grad: Any, q: Any, k: Any, v: Any, *_: object, **__: object) -> int:
    return int(sdpa_backward_flop_count(grad, q, k, v))  # type: ignore[no-untyped-call]


MISSING_FORMULAS = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: flash_forward,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: flash_backward,
}
"""torch counts the flash kernel of a GPU; that of a CPU it would count as nothing."""


def counted(spec: TrialSpec) -> int:
    """What a step of the whole model runs, with the layers wrapped as the layout says."""
    with torch.device("meta"):
        model = Decoder(spec.model, seq_len=spec.workload.seq_len, layers=range(spec.model.num_layers))
    for name, child in model.named_children():
        materialise(child, name, seed=0, device=torch.device("cpu"), dtype=torch.float32)
    for index_in_stage, (index, layer) in enumerate(list(model.layers.items())):
        model.layers[index] = recomputed(layer, spec.layout, index_in_stage=index_in_stage)
    tokens = torch.zeros(spec.workload.global_batch_size, spec.workload.seq_len, dtype=torch.long)
    with FlopCounterMode(display=False, custom_mapping=MISSING_FORMULAS) as counter, kernel_context(spec.layout):
        model(tokens).sum().backward()
    return int(counter.get_total_flops())


RECOMPUTATION: tuple[dict[str, Any], ...] = (
    {},
    {"recompute": Recompute.SELECTIVE},
    {"recompute": Recompute.FULL},
    {"recompute": Recompute.FULL, "recompute_every": 2},
    {"recompute": Recompute.FULL, "recompute_every": 3},
)


@pytest.mark.parametrize("choice", RECOMPUTATION, ids=str)
def test_hardware_flop_are_exactly_those_that_run_with_the_math_kernel(choice: dict[str, Any]) -> None:
    spec = trial_spec(cpu_layout(micro_batch_size=8, attention_kernel=MATH, **choice))
    assert counted(spec) == model_flop(spec) + recomputed_flop(spec)


@pytest.mark.parametrize("choice", RECOMPUTATION, ids=str)
def test_the_flash_kernel_runs_one_product_more_in_its_backward_pass(choice: dict[str, Any]) -> None:
    """It computes the scores again (five products instead of four), which neither MFU nor HFU counts."""
    spec = trial_spec(cpu_layout(micro_batch_size=8, attention_kernel=FLASH, **choice))
    scores_again = spec.model.attention_flop_per_token(spec.workload.seq_len) // 2 * spec.workload.tokens_per_step
    assert counted(spec) == model_flop(spec) + recomputed_flop(spec) + scores_again


@pytest.mark.parametrize(
    "shape", [{"gated_mlp": False}, {"num_kv_heads": 4, "head_dim": 24}, {"num_layers": 7}], ids=str
)
def test_full_recomputation_leaves_out_the_last_product_of_a_layer_of_any_shape(shape: dict[str, Any]) -> None:
    layout = cpu_layout(micro_batch_size=8, recompute=Recompute.FULL)
    spec = trial_spec(layout, model=tiny_model(**shape))
    assert counted(spec) == model_flop(spec) + recomputed_flop(spec)


def test_every_second_layer_is_counted_from_the_start_of_each_stage() -> None:
    """Seven layers in stages of 2, 2, 2 and 1 recompute 4 of them; in one stage they would also be 4, in two 2 + 2."""
    model = tiny_model(num_layers=7)

    def flop(**changes: Any) -> int:
        layout = cpu_layout(micro_batch_size=1, recompute=Recompute.FULL, **changes)
        return recomputed_flop(trial_spec(layout, model=model))

    layer = flop() // 7
    interleaved = PipelineSchedule.INTERLEAVED_1F1B
    stages: dict[str, Any] = {"pipeline_parallel_degree": 2, "virtual_stages_per_rank": 2}
    assert recomputed_flop(trial_spec(Layout())) == 0
    assert flop(recompute_every=2) == 4 * layer
    assert flop(recompute_every=3) == 3 * layer
    assert flop(recompute_every=3, pipeline_schedule=interleaved, **stages) == 4 * layer
