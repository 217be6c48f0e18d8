"""What the tuner explains, advises and plans, as recorded.

* Explanations of layouts of jobs of every kind, and what each rule says of a layout that breaks it.
* A layout that is changed by hand, reports on layers of communication, the best of a space with advice.
* Plans of clusters and of the phases of a job, and texts on jobs of engines and on links.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.models import load_model
from autotuner.core.choices import CollectiveAlgorithm, Precision, Recompute, ShardLevel
from autotuner.core.cluster import SIMULATED
from autotuner.core.fault_trace import FaultTrace
from autotuner.core.job import PhasedJob
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.lines import read_phases
from autotuner.core.measurement import LinkEvent, LinkEventKind
from autotuner.core.rules.legality import RULES, reasons
from autotuner.core.rules.trial_job import TRIAL_RULES
from autotuner.core.space import default_space
from autotuner.core.stack import Stack
from autotuner.core.trial import EngineJobPhase
from autotuner.core.workload import Workload
from autotuner.report.caveats import caveats_in_words
from autotuner.report.engine_jobs import engine_in_words, engine_job_in_words
from autotuner.report.explanation import alternative_in_words, curve_in_words
from autotuner.report.jobs import course_in_words
from autotuner.report.links import event_in_words, link_in_words, trace_in_words
from autotuner.report.parts import limit_in_words, loss_in_words, part_name, source_in_words
from autotuner.report.timelines import cost_in_words
from autotuner.report.topologies import described_said
from autotuner.report.trial_parts import overlap_sentence
from autotuner.report.words import changes_in_words
from autotuner.search.compute import Inline
from autotuner.search.explain.bandwidth import bandwidth_curve
from autotuner.search.explain.choosable import Choosable, what_if
from autotuner.search.explain.communication import rank_groups
from autotuner.search.explain.explanation import explain
from autotuner.search.explain.layers import layer_report
from autotuner.search.explain.link_timelines import link_timelines
from autotuner.search.planning.phases import PhasesQuestion, plan_phases
from autotuner.search.planning.plan import plan
from autotuner.search.planning.request import Goal, PlanRequest
from autotuner.search.preview import Question, best_of_space
from tests.builders import engine_job
from tests.golden.golden import Golden
from tests.golden.jobs import JOBS, SLOW_LINKS, abbreviate, few_digits, file_name, job_of, layouts_of

_TRACE = FaultTrace.parse("2;0_1;0.06\n4;2_3;100mbit\n6;0_1;dead", num_steps=8)


@pytest.mark.parametrize("name", JOBS)
def test_the_explanation_of_a_layout_is_the_one_that_was_recorded(golden: Golden, name: str) -> None:
    job, layout = job_of(name), layouts_of(name)[len(name) % 7]
    found = explain(layout, job)
    links, curve = link_timelines(layout, job, None), bandwidth_curve(layout, job)
    output = {
        "layout": str(layout),
        "time": [[one.part, few_digits(one.seconds), limit_in_words(one.limit, layout)] for one in found.time],
        "step": [[part_name(one), one.kind, few_digits(one.predicted_s or 0.0)] for one in found.step.parts],
        "largest loss": loss_in_words(found.step),
        "memory": [[one.part, source_in_words(one.part, layout, job)] for one in found.memory],
        "stages": abbreviate(found.stages),
        "changes": [alternative_in_words(one, found.prediction) for one in (*found.helpful, *found.too_large)],
        "illegal": [[changes_in_words(one.changes), one.reason.message] for one in found.illegal],
        "caveats": caveats_in_words(found.caveats),
        "cluster": described_said(job.cluster),
        "beside": abbreviate((found.links, found.batches, found.routes, found.nccl)),
        "groups": [[one.axis, list(one.ranks)[:9]] for one in rank_groups(layout, job, 1).groups],
        "slow links": [
            " ".join(cost_in_words(links)),
            few_digits(links.added_s),
            len(links.messages),
            abbreviate(links.hops),
        ],
        "bandwidths": [[*curve_in_words(curve)] if curve.ways else curve.why_empty, abbreviate(curve.spans)],
    }
    golden.check(f"explanations/{file_name(name)}", output)


_WILD_NUMBERS = (0, 1, 2, 3, 5, 7, 8, 48, 65, 129, 1001)

_OTHER_MODELS = ("bloom-7b1", "gpt-j-6b", "gemma-2-2b", "olmo-2-7b", "qwen2-57b-a14b", "falcon-7b", "phi-3-mini")


def test_each_rule_says_of_a_layout_that_breaks_it_what_was_recorded(golden: Golden) -> None:
    jobs = {name: job_of(name) for name in JOBS}
    jobs |= {model: replace(jobs["lengths"], model=load_model(model)) for model in _OTHER_MODELS}
    said: dict[str, list[Any]] = {}
    for name, job in jobs.items():
        chance = random.Random(name)
        for layout in layouts_of(name if name in JOBS else "lengths")[:60]:
            broken = _changed_at_random(layout, chance)
            is_tree = str(broken.collective_algorithm) == "tree"
            if job.cluster.accelerator.kind == "cpu" and is_tree:
                continue  # an option that leaves cores
            for reason in reasons(broken, job, (*RULES, *TRIAL_RULES)):
                said.setdefault(
                    reason.rule, [name, str(broken), reason.field, reason.message, abbreviate(reason.nearest)]
                )
    golden.check("explanations/rules", dict(sorted(said.items())))


def _changed_at_random(layout: Layout, chance: random.Random) -> Layout:
    """Return the layout with values of a few options that hardly any job allows."""
    values: dict[str, Any] = {}
    for name, one in OPTIONS.items():
        if not one.only_in and chance.random() < 0.12:
            values[name] = chance.choice(one.values or [number for number in _WILD_NUMBERS if number >= one.lowest])
    return replace(layout, **values)


def test_a_layout_that_is_changed_by_hand_gets_the_answer_that_was_recorded(golden: Golden) -> None:
    job = job_of("dense")
    asked = [Layout(tensor_parallel_degree=16, pipeline_parallel_degree=3), Layout(tensor_parallel_degree=8)]
    found = [what_if(layout, job) for layout in asked]
    output = [
        {
            "layout": str(one.layout),
            "reasons": [why.message for why in one.reasons],
            "nearest": abbreviate(one.nearest),
            "choices": {option: [_choice(value) for value in values] for option, values in one.choices.items()},
        }
        for one in found
    ]
    golden.check("explanations/by-hand", output)


def _choice(one: Choosable) -> str:
    """Return a value that an option may take, or the rules against it."""
    return " ".join([str(one.value), *(why.rule for why in one.reasons)])


_LAYERS: Mapping[str, Mapping[str, tuple[int, ...]]] = {
    "dense": {"precision": (Precision.BF16,)},
    "slow links": {
        "precision": (Precision.BF16,),
        "shard_level": (ShardLevel.OPTIMIZER, ShardLevel.PARAMETERS),
        "micro_batch_size": (1,),
    },
    "nodes of cores, lengths": {"collective_algorithm": (CollectiveAlgorithm.RING,), "shard_level": (ShardLevel.NONE,)},
}


@pytest.mark.parametrize("name", _LAYERS)
def test_the_gain_of_each_communication_layer_is_as_recorded(golden: Golden, name: str) -> None:
    job = job_of(name)
    space = default_space(job).with_axes(recompute=(Recompute.NONE, Recompute.FULL), **_LAYERS[name])
    golden.check(f"explanations/layers-{file_name(name)}", abbreviate(layer_report(job, space)))


@pytest.mark.parametrize("name", ["dense", "thin network", "PCIe", "experts, latent attention"])
def test_the_best_of_a_space_comes_with_the_advice_that_was_recorded(golden: Golden, name: str) -> None:
    job, current = job_of(name), layouts_of(name)[0]
    axes = {"micro_batch_size": (1, 2), "precision": job.cluster.accelerator.precisions[:2]}
    small = replace(job.cluster.accelerator, memory_bytes=6 * 10**9)
    short_of = job if name != "PCIe" else replace(job, cluster=replace(job.cluster, accelerator=small))
    found = best_of_space(Question(job=short_of, axes=axes, limit=3, current=current))
    golden.check(f"explanations/best-{file_name(name)}", abbreviate(found))


@pytest.mark.parametrize("name", ["deadline", "price", "no limit"])
def test_a_plan_of_clusters_is_the_one_that_was_recorded(golden: Golden, name: str) -> None:
    goals = {
        "deadline": Goal(num_tokens=1e12, deadline_s=25 * 86_400.0),
        "price": Goal(num_tokens=3e11, price_limit=60_000.0),
        "no limit": Goal(num_tokens=1e11),
    }
    request = PlanRequest(
        model=load_model("llama-3-8b"),
        workload=Workload(seq_len=4096, global_batch_size=256),
        goal=goals[name],
        stack=Stack(),
        accelerators=("h100", "mi300x"),
        sizes=(16, 64),
        clusters=(load_cluster("a100:32@fat-tree-2to1"),),
        prices={"mi300x": 3.2, "h100": 2.0},
        space={"recompute": (Recompute.NONE,), "micro_batch_size": (1,)},
    )
    golden.check(f"explanations/plan-{file_name(name)}", abbreviate(plan(request, Inline())))


_PHASES = {
    "long": "short: 80 % | long: 20 %; seq_len 32768; batch 64",
    "thin": "usual: 70 % | thin: 30 %; bandwidth 2gbit",
    "formats": "main: 90 %; precision fp8 | cooldown: 10 %; precision bf16",
}


@pytest.mark.parametrize("name", _PHASES)
@pytest.mark.parametrize("num_tokens", [1e7, 1e12])
def test_a_plan_of_the_phases_of_a_job_is_the_one_that_was_recorded(
    golden: Golden, name: str, num_tokens: float
) -> None:
    phased = PhasedJob(job=job_of("dense, bf16 moments"), num_tokens=num_tokens, phases=read_phases(_PHASES[name]))
    question = PhasesQuestion(phased=phased, axes={"recompute": (Recompute.NONE,), "micro_batch_size": (1, 2)})
    found = plan_phases(question)
    output = {
        "best": abbreviate(found.best),
        "others": [[one.choices[0].label, few_digits(one.total_s)] for one in (*found.statics, found.greedy)],
        "switch": [few_digits(found.switch_s), abbreviate(found.switch), few_digits(found.checkpoint_bytes)],
        "sentences": [*course_in_words(found), *caveats_in_words(found.caveats)],
    }
    golden.check(f"explanations/phases-{name}-{num_tokens:.0e}", output)


def test_texts_on_jobs_of_engines_and_links_are_those_that_were_recorded(golden: Golden) -> None:
    waits = engine_job(detail="Resources")
    runs = replace(waits, phase=EngineJobPhase.RUNNING, started_at=40.0)
    over = [replace(runs, phase=phase, ended_at=90.0) for phase in (EngineJobPhase.ENDED, EngineJobPhase.LOST)]
    never = [replace(one, started_at=None) for one in over]
    events = [
        LinkEvent(step=8, kind=kind, stages=(0, 1), delay_s=0.06, warm_up=(3, 1), cost_s=0.1) for kind in LinkEventKind
    ]
    found = {
        "jobs": [engine_job_in_words(job, 100.0) for job in (waits, runs, *over, *never)],
        "engines": [engine_in_words(*names) for names in (("local", ""), ("slurm", "batch"), (SIMULATED, "flaky"))],
        "links": [link_in_words(one) for one in SLOW_LINKS],
        "trace": trace_in_words(_TRACE),
        "events": [event_in_words(one) for one in events],
        "overlap": [overlap_sentence(0.9, 0.875), overlap_sentence(0.9, None)],
    }
    golden.check("explanations/texts", found)
