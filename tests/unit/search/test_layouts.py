from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import optuna
import pytest

from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.models import load_model
from autotuner.core.job import Job
from autotuner.core.space import SearchSpace
from autotuner.core.workload import Workload
from autotuner.search.space.elimination import Sieved, explain_empty, sieved
from autotuner.search.space.legal import legal_layouts
from autotuner.search.space.trainers import trial_rules, trial_space
from tests.builders import present

# ---------------------------------------------------------------- sampler page
PAGE = Path(__file__).parents[3] / "docs/sampler.md"


def test_the_example_of_the_page_finds_a_layout_and_stops_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(example, PAGE.name, "exec"), names)  # our own page
    study: optuna.Study = names["study"]
    assert len(study.trials) < 50
    assert names["sampler"].remaining_gain(study) < 0.01
    assert capsys.readouterr().out.startswith(f"{len(study.trials)} trials, ")


# ---------------------------------------------------------------- sieve
RULES = trial_rules(None)


def job(model: str = "llama-3-8b", cluster: str = "h100:8", batch: int = 64) -> Job:
    workload = Workload(seq_len=4096, global_batch_size=batch)
    return Job(model=load_model(model), cluster=load_cluster(cluster), workload=workload)


def whole(job: Job, space: SearchSpace) -> Sieved:
    return present(sieved(job, space, RULES))


@pytest.mark.parametrize("model", ["llama-3-8b", "mixtral-8x7b", "llama-demo"])
def test_candidates_less_what_falls_out_are_the_legal_layouts(model: str) -> None:
    found, space = whole(job(model), trial_space(job(model), None, {})), trial_space(job(model), None, {})
    assert found.num_candidates - sum(fall.num_layouts for fall in found.falls) == found.num_legal
    assert found.num_legal == len(legal_layouts(job(model), space, RULES))


@pytest.mark.parametrize("narrowed", [{"sequence_parallel": (True,)}, {"recompute_every": (2,)}, {"compiled": (True,)}])
def test_a_space_without_a_choices_default_is_counted_alike(narrowed: dict[str, tuple[int, ...]]) -> None:
    space = trial_space(job(), None, narrowed)
    assert whole(job(), space).num_legal == len(legal_layouts(job(), space, RULES))


def test_rules_that_take_layouts_out_come_by_their_number_and_explain_an_empty_space() -> None:
    space = trial_space(job(cluster="h100:16"), None, {"tensor_parallel_degree": (16,)})
    found = whole(job(cluster="h100:16"), space)
    assert [fall.num_layouts for fall in found.falls] == sorted((f.num_layouts for f in found.falls), reverse=True)
    (fall,) = (fall for fall in found.falls if fall.rule == "kv-heads-per-tensor-rank")
    assert fall.field == "tensor_parallel_degree"
    assert fall.message == "8 kv heads do not split over 16 tensor ranks"
    assert found.num_legal == 0
    space = trial_space(job(), None, {"micro_batch_size": (3,)})
    explained = {reason.rule for reason in explain_empty(job(), space, RULES)}
    assert {fall.rule for fall in whole(job(), space).falls} <= explained


def test_spaces_too_large_are_left_unexplained_and_idle_choices_are_no_candidates() -> None:
    switches = ("fused_norm", "loss_parallel", "compiled", "fp32_gradient_reduce", "offload_activations")
    space = trial_space(job(cluster="h100:64", batch=512), None, dict.fromkeys(switches, (False, True)))
    assert sieved(job(cluster="h100:64", batch=512), space, RULES) is None
    narrow = trial_space(job(), None, {"pipeline_parallel_degree": (1,), "pipeline_schedule": (1,)})
    wide = trial_space(job(), None, {"pipeline_parallel_degree": (1,), "pipeline_schedule": (1, 2)})
    assert whole(job(), narrow).num_candidates == whole(job(), wide).num_candidates
