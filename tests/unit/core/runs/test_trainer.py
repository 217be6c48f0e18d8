"""What a sweep knows of a trainer."""

from __future__ import annotations

from typing import Any

import pytest

from autotuner.core.layouts.choice import AttentionKernel
from autotuner.core.runs.sweep import SweepRequest
from autotuner.core.runs.trainer import ExportFormat, Trainer
from autotuner.core.runs.trial_spec import TrialSettings, TrialSpec
from autotuner.core.wire import dumps, from_dict, loads, to_dict
from autotuner.errors import InvalidInput
from tests.builders import sweep_request
from tests.trials.launching import spec


def trainer(**changes: Any) -> Trainer:
    return Trainer(**{"name": "mine", "format": ExportFormat.ARGUMENTS, **changes})


def test_it_reads_all_that_neither_its_format_nor_its_operator_takes_away() -> None:
    one = trainer(fixed={"recompute": "full"})
    assert one.reads("micro_batch_size", {"attention_kernel"})
    assert not one.reads("attention_kernel", {"attention_kernel"})
    assert not one.reads("recompute", ())


def test_it_reads_its_options_alone_also_what_the_format_leaves_to_its_code() -> None:
    one = trainer(options=("attention_kernel",))
    assert one.reads("attention_kernel", {"attention_kernel"})
    assert not one.reads("micro_batch_size", ())


def test_a_fixed_field_has_a_value_of_its_own_kind() -> None:
    one = trainer(fixed={"attention_kernel": "math"})
    assert one.held("attention_kernel") is AttentionKernel.MATH
    assert one.held("recompute") is None


@pytest.mark.parametrize(
    ("changes", "field", "nearest"),
    [
        ({"name": "../x"}, "name", None),
        ({"options": ("tensor_degree",)}, "options.0", "tensor_parallel_degree"),
        ({"fixed": {"precison": "bf16"}}, "fixed.precison", "precision"),
        ({"fixed": {"precision": "bf17"}}, "fixed.precision", "bf16"),
        ({"fixed": {"micro_batch_size": 0}}, "fixed.micro_batch_size", 1),
        ({"options": ("recompute",), "fixed": {"recompute": "full"}}, "fixed.recompute", None),
        ({"values": {"precison": ("bf16",)}}, "values.precison", "precision"),
        ({"values": {"precision": ("bf16", "bf17")}}, "values.precision", "bf16"),
        ({"values": {"recompute": ()}}, "values.recompute", None),
        ({"options": ("micro_batch_size",), "values": {"recompute": ("full",)}}, "values.recompute", None),
        ({"fixed": {"recompute": "full"}, "values": {"recompute": ("full",)}}, "values.recompute", None),
        ({"format": ExportFormat.SBATCH}, "format", None),
    ],
)
def test_what_is_no_trainer_is_refused_with_the_nearest_that_is(
    changes: dict[str, Any], field: str, nearest: object
) -> None:
    with pytest.raises(InvalidInput) as caught:
        trainer(**changes)
    assert (caught.value.field, caught.value.nearest) == (field, nearest)


def test_it_travels_with_its_sweep() -> None:
    fixed, values = {"compiled": True, "recompute_every": 2}, {"shard_level": ("none", "parameters")}
    request = sweep_request(trainer=trainer(fixed=fixed, values=values))
    assert loads(SweepRequest, dumps(request)) == request


def test_a_sweep_that_was_stored_before_there_were_trainers_runs_our_own_decoder() -> None:
    document = to_dict(sweep_request())
    del document["trainer"]
    assert from_dict(SweepRequest, document).trainer is None


def test_a_trial_that_was_written_before_there_were_trainers_runs_our_own_decoder() -> None:
    document = to_dict(spec("old"))
    del document["trainer"], document["cluster"]
    assert from_dict(TrialSpec, document).trainer is None


def test_a_trainer_is_never_run_at_smaller_depths() -> None:
    with pytest.raises(InvalidInput, match="whole") as caught:
        sweep_request(trainer=trainer(), trial=TrialSettings(proxy_layers_per_stage=(1, 2)))
    assert caught.value.field == "trial.proxy_layers_per_stage"


def test_a_trainers_trial_says_where_it_runs() -> None:
    document = to_dict(spec("where"))
    with pytest.raises(InvalidInput, match="with a trainer"):
        from_dict(TrialSpec, {**document, "trainer": to_dict(trainer())})
