from __future__ import annotations

from dataclasses import replace

from autotuner.core.choices import PipelineSchedule
from autotuner.core.stages import stage_layers
from autotuner.core.trial_spec import TrialSpec
from autotuner.core.workload import Workload
from tests.builders import cpu_layout, tiny_model
from tests.trials.specs import trial_spec
from trials.dry_run.dry_run import Extrapolation


def deep(num_layers: int, num_sequences: int, **layout: object) -> TrialSpec:
    return trial_spec(
        cpu_layout(**layout),
        model=tiny_model(num_layers=num_layers),
        workload=Workload(seq_len=32, global_batch_size=num_sequences),
    )


def test_what_is_small_already_runs_whole() -> None:
    spec = deep(6, 3)
    extrapolation = Extrapolation.of(spec, exact=False)
    assert extrapolation.is_whole
    assert extrapolation.specs() == [spec]
    assert extrapolation.weights() == [1.0]


def test_an_exact_answer_runs_everything() -> None:
    assert Extrapolation.of(deep(80, 100), exact=True).is_whole


def test_weights_give_back_what_is_linear_in_layers_and_micro_batches() -> None:
    extrapolation = Extrapolation.of(deep(40, 64, pipeline_parallel_degree=2), exact=False)
    sizes = [(spec.model.num_layers, spec.workload.global_batch_size) for spec in extrapolation.specs()]
    figures = [3 + 5 * layers + 7 * batch + 11 * layers * batch for layers, batch in sizes]
    total = sum(weight * figure for weight, figure in zip(extrapolation.weights(), figures, strict=True))
    assert total == 3 + 5 * 40 + 7 * 64 + 11 * 40 * 64


def test_unequal_stages_stay_as_unequal() -> None:
    spec = deep(41, 8, pipeline_parallel_degree=4, first_stage_less_layers=1, last_stage_less_layers=2)

    def sizes(of: TrialSpec) -> list[int]:
        return [len(stage_layers(of.layout, of.model.num_layers, stage)) for stage in range(4)]

    for smaller in Extrapolation.of(spec, exact=False).specs():
        fewer = sizes(spec)[1] - sizes(smaller)[1]
        assert fewer > 0
        assert sizes(smaller) == [size - fewer for size in sizes(spec)]


def test_recomputed_layers_keep_their_pattern() -> None:
    extrapolation = Extrapolation.of(deep(50, 2, recompute_every=3), exact=False)
    assert {layers % 3 for layers in extrapolation.layers} == {50 % 3}


def test_interleaved_micro_batches_come_in_rounds() -> None:
    layout = {
        "pipeline_parallel_degree": 4,
        "virtual_stages_per_rank": 2,
        "pipeline_schedule": PipelineSchedule.INTERLEAVED_1F1B,
    }
    assert Extrapolation.of(deep(64, 128, **layout), exact=False).micro_batches == (8, 12)


def test_the_batch_of_a_replica_is_what_shrinks() -> None:
    spec = deep(4, 64, data_parallel_replicate_degree=2, micro_batch_size=4)
    (first, second) = Extrapolation.of(spec, exact=False).specs()
    assert [first.workload.num_micro_batches(first.layout), second.workload.num_micro_batches(second.layout)] == [2, 3]
    assert replace(first, workload=spec.workload) == spec
