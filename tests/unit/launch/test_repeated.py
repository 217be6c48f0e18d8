"""Runs of one trial: repeated, at smaller depths, and pooled."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from autotuner.core.blocks import MixtureOfExperts
from autotuner.core.choices import PipelineSchedule, Recompute
from autotuner.core.cluster import LOCAL, Cluster
from autotuner.core.layout import Layout
from autotuner.core.measurement import Breakdown, FinishedRun, LinkEvent, LinkEventKind, Measurement
from autotuner.core.stages import stage_layers
from autotuner.core.trial import FailureKind, Stopped, TrialFailure
from autotuner.core.trial_spec import Trainer, TrialSettings, TrialSpec
from autotuner.launch.contract import TrialWatcher
from autotuner.launch.launchers import Launchers
from autotuner.launch.proxy import extrapolated, proxies
from tests.builders import cpu_cluster, cpu_layout, failure, tiny_model
from tests.fake_launcher import FakeLauncher, plain_measurement
from tests.trials.launching import SHORT, Watcher, failed, spec

Behaviour = Callable[[TrialSpec], Measurement | TrialFailure]


def disturbed_by(*shares: float) -> Behaviour:
    """Each run in turn with so much of the machine used by others; a run is as long as it was disturbed."""
    rest = iter(shares)

    def behave(trial: TrialSpec) -> Measurement:
        share = next(rest)
        return replace(plain_measurement(trial, step_time_s=1.0 + share), foreign_cpu_share=share)

    return behave


def in_turn(outcomes: Iterable[float | TrialFailure]) -> Behaviour:
    """Each run in turn takes so long, or fails so."""
    rest = iter(outcomes)

    def behave(trial: TrialSpec) -> Measurement | TrialFailure:
        outcome = next(rest)
        return outcome if isinstance(outcome, TrialFailure) else plain_measurement(trial, step_time_s=outcome)

    return behave


def measured(launcher: FakeLauncher, settings: TrialSettings, watcher: Watcher | None = None) -> Measurement:
    outcome = Launchers({LOCAL: launcher}).run(spec("repeated", settings), watcher or Watcher())
    assert isinstance(outcome, Measurement), outcome
    return outcome


def test_a_trial_is_run_again_while_it_is_disturbed_and_the_least_disturbed_run_counts() -> None:
    launcher = FakeLauncher(disturbed_by(0.1))
    outcome = measured(launcher, SHORT)
    assert launcher.specs == [spec("repeated", SHORT)]
    assert (outcome.num_disturbed, outcome.noise_floor, outcome.extrapolated_from) == (0, None, ())
    launcher = FakeLauncher(disturbed_by(0.5, 0.3, 0.05, 0.0))
    outcome = measured(launcher, replace(SHORT, max_repeats=5))
    assert len(launcher.specs) == 3
    assert (outcome.foreign_cpu_share, outcome.num_disturbed) == (0.05, 2)
    outcome = measured(FakeLauncher(disturbed_by(0.5, 0.2, 0.4)), replace(SHORT, max_repeats=2))
    assert (outcome.foreign_cpu_share, outcome.step_time_s, outcome.num_disturbed) == (0.2, 1.2, 2)
    launcher = FakeLauncher(disturbed_by(0.5))
    Launchers({LOCAL: launcher}).run(spec("gpus", device="cuda"), Watcher())
    assert len(launcher.specs) == 1


def test_runs_that_finished_before_the_service_died_are_not_repeated() -> None:
    watcher, settings = Watcher(), replace(SHORT, num_runs=3)
    measured(FakeLauncher(in_turn([1.0, 1.1, failure(FailureKind.CRASH)])), settings, watcher)
    assert [run.number for run in watcher.runs] == [0, 1]
    launcher, again = FakeLauncher(in_turn([1.2])), Watcher()
    outcome = Launchers({LOCAL: launcher}).run(replace(spec("repeated", settings), runs=tuple(watcher.runs)), again)
    assert isinstance(outcome, Measurement)
    assert [(one.run, one.runs) for one in launcher.specs] == [(2, ())]
    assert outcome.noise_floor == pytest.approx(0.2 / 1.1)
    assert outcome.num_steps == 6
    kept = "was measured before the trial was interrupted, so its result is kept"
    assert [note for note in again.notes if kept in note] == [f"run 1 {kept}", f"run 2 {kept}"]


def test_a_run_again_has_the_time_that_kept_runs_left() -> None:
    settings = replace(SHORT, num_runs=2)
    run = FinishedRun(number=0, seconds=0.75 * SHORT.timeout_s, measurement=plain_measurement(spec("repeated")))
    launcher = FakeLauncher()
    Launchers({LOCAL: launcher}).run(replace(spec("repeated", settings), runs=(run,)), Watcher())
    assert launcher.specs == []  # another run as long would not fit
    launcher = FakeLauncher(in_turn([1.0, 1.0]))
    measured(launcher, replace(SHORT, num_runs=2))
    first, second = (trial.settings.timeout_s for trial in launcher.specs)
    assert second < first == SHORT.timeout_s


def test_a_trial_that_dies_is_not_run_again_and_leaves_the_figures_of_the_runs_before() -> None:
    launcher = FakeLauncher(in_turn([1.0, failure(FailureKind.CRASH)]))
    outcome = measured(launcher, replace(SHORT, num_runs=3))
    assert (len(launcher.specs), outcome.step_time_s, outcome.noise_floor) == (2, 1.0, None)
    launcher = FakeLauncher(in_turn([failure(FailureKind.OOM), 1.0]))
    settings = replace(SHORT, num_runs=2, max_repeats=2)
    assert Launchers({LOCAL: launcher}).run(spec("dead", settings), Watcher()) == failure(FailureKind.OOM)
    assert len(launcher.specs) == 1


def test_the_watcher_gets_the_steps_and_events_of_the_first_run_alone() -> None:
    watcher = Watcher()
    measured(FakeLauncher(in_turn([1.0, 1.1])), replace(SHORT, num_runs=2), watcher)
    assert [step.step for step in watcher.steps] == [0, 1, 2]
    watcher, event = Watcher(), LinkEvent(step=1, kind=LinkEventKind.LINK_SLOW, stages=(0, 1), delay_s=0.06)
    launcher = FakeLauncher(lambda trial: replace(plain_measurement(trial), link_events=(event,)))
    outcome = measured(launcher, replace(SHORT, num_runs=2), watcher)
    assert (watcher.link_events, outcome.link_events) == ([event], (event,))


@pytest.mark.parametrize("changes", [{"num_runs": 2}, {"proxy_layers_per_stage": (1, 2)}])
def test_a_watcher_may_stop_any_of_the_runs(changes: dict[str, Any]) -> None:
    class Second(FakeLauncher):
        def run(self, spec: TrialSpec, watcher: TrialWatcher) -> Measurement | TrialFailure | Stopped:
            del watcher
            self.specs.append(spec)
            return plain_measurement(spec) if len(self.specs) == 1 else Stopped(reason="shutdown")

    trial = spec("stopped", replace(SHORT, **changes), model=tiny_model())
    outcome = Launchers({LOCAL: Second()}).run(trial, Watcher())
    assert outcome == Stopped(reason="shutdown")


def test_a_trial_at_proxy_depth_runs_two_smaller_models_and_says_so() -> None:
    launcher, watcher = FakeLauncher(), Watcher()
    settings = replace(SHORT, proxy_layers_per_stage=(1, 2))
    outcome = Launchers({LOCAL: launcher}).run(spec("proxy", settings, model=tiny_model(num_layers=8)), watcher)
    assert isinstance(outcome, Measurement)
    assert [trial.model.num_layers for trial in launcher.specs] == [1, 2]
    assert outcome.extrapolated_from == (1, 2)
    assert watcher.steps == []  # they are not the steps of the model that was asked for


def test_a_proxy_that_dies_says_with_how_many_layers() -> None:
    launcher = FakeLauncher(in_turn([1.0, failure(FailureKind.OOM)]))
    settings = replace(SHORT, proxy_layers_per_stage=(1, 2))
    outcome = failed(Launchers({LOCAL: launcher}).run(spec("proxy", settings, model=tiny_model()), Watcher()))
    assert outcome.kind == FailureKind.OOM
    assert outcome.message.startswith("with 2 of 4 layers: ")


def test_a_trial_that_the_launcher_refuses_is_refused() -> None:
    class Elsewhere(FakeLauncher):
        def refuses(self, cluster: Cluster, trainer: Trainer | None = None) -> str | None:
            del trainer
            return f"no {cluster.accelerator.name} here"

    assert Launchers({LOCAL: Elsewhere()}).refuses(cpu_cluster(2)) == "no cpu here"


def test_a_person_who_waits_is_told_why_a_trial_is_run_again_and_of_proxies() -> None:
    watcher = Watcher()
    measured(FakeLauncher(disturbed_by(0.64, 0.8, 0.05)), replace(SHORT, max_repeats=3), watcher)
    assert watcher.notes == [
        "is measured again, because other programs used 64 % of the CPU time (repeat 1 of at most 3)",
        "is measured again, because in the quietest run so far other programs used 64 % of the CPU time "
        "(repeat 2 of at most 3)",
    ]
    watcher = Watcher()
    settings = replace(SHORT, num_runs=2, proxy_layers_per_stage=(1, 2))
    Launchers({LOCAL: FakeLauncher()}).run(spec("proxy", settings, model=tiny_model()), watcher)
    again = "run 2 of 2, to measure how much repeated runs differ"
    first, second = (f"runs {num_layers} of 4 layers, to extrapolate to all layers" for num_layers in (1, 2))
    assert watcher.notes == [first, again, second, again]


END_S, LAYER_S = 0.5, 0.25
END_BYTES, LAYER_BYTES = 1000, 300


def trial(layout: Layout | None = None, *, num_layers: int = 12, layers: tuple[int, ...] = (1, 2)) -> TrialSpec:
    settings = replace(SHORT, proxy_layers_per_stage=layers)
    return spec("t", settings, model=tiny_model(num_layers=num_layers), layout=layout or cpu_layout())


def depths(trial: TrialSpec) -> tuple[int, ...]:
    return tuple(proxy.model.num_layers for proxy in proxies(trial) or ())


def pair(trial: TrialSpec) -> tuple[TrialSpec, TrialSpec]:
    found = proxies(trial)
    assert found is not None
    return found


def sizes(trial: TrialSpec) -> list[int]:
    return [len(stage_layers(trial.layout, trial.model.num_layers, s)) for s in range(trial.layout.num_stages)]


def linear(trial: TrialSpec) -> Measurement:
    """A machine on which each layer costs the same time and the same bytes."""
    num_layers = trial.model.num_layers
    run = plain_measurement(trial, step_time_s=END_S + LAYER_S * num_layers)
    return replace(run, peak_bytes=(END_BYTES + LAYER_BYTES * num_layers,) * trial.layout.world_size)


def test_a_trial_without_proxies_or_with_deeper_ones_than_its_model_runs_whole() -> None:
    assert proxies(trial(layers=())) is None
    assert proxies(trial(num_layers=4, layers=(2, 4))) is None


def test_a_proxy_has_so_many_layers_on_each_stage_recomputed_and_dense_ones_in_proportion() -> None:
    assert depths(trial()) == (1, 2)
    assert depths(trial(cpu_layout(pipeline_parallel_degree=4))) == (4, 8)
    whole = trial(cpu_layout(recompute=Recompute.FULL, recompute_every=3), num_layers=13)
    assert depths(whole) == (4, 7)  # 13 = 4 + 3 * 3: each three more layers recompute one more
    experts = MixtureOfExperts(num_experts=4, experts_per_token=2, expert_ffn_size=64, num_dense_layers=3)
    whole = trial(layers=(1, 2))
    assert depths(replace(whole, model=replace(whole.model, experts=experts))) == (3, 4)


@pytest.mark.parametrize(
    "changes",
    [
        {"pipeline_parallel_degree": 4},
        {"pipeline_parallel_degree": 4, "first_stage_less_layers": 1, "last_stage_less_layers": 1},
        {"pipeline_parallel_degree": 2, "last_stage_less_layers": 2},
        {
            "pipeline_parallel_degree": 2,
            "virtual_stages_per_rank": 2,
            "pipeline_schedule": PipelineSchedule.INTERLEAVED_1F1B,
        },
    ],
)
@pytest.mark.parametrize("num_layers", [22, 23, 24])
def test_the_stages_of_a_proxy_are_as_unbalanced_as_those_of_the_whole_model(
    changes: dict[str, Any], num_layers: int
) -> None:
    whole = trial(cpu_layout(**changes), num_layers=num_layers)
    for proxy in pair(whole):
        missing = {large - small for large, small in zip(sizes(whole), sizes(proxy), strict=True)}
        assert len(missing) == 1
        assert min(sizes(proxy)) >= 1


def test_figures_that_grow_by_the_same_with_every_layer_are_those_of_the_whole_model() -> None:
    whole = trial(cpu_layout(pipeline_parallel_degree=2))
    shallow, deep = pair(whole)
    found, expected = extrapolated(whole, linear(shallow), linear(deep)), linear(whole)
    assert isinstance(found, Measurement)
    assert found.extrapolated_from == (2, 4)
    assert found.peak_bytes == expected.peak_bytes
    for name in ("step_time_s", "tokens_per_s", "model_flop_per_s", "mfu", "hfu"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name)), name
    assert found.phases is not None
    assert expected.phases is not None
    assert found.phases.forward_backward_s == pytest.approx(expected.phases.forward_backward_s)


def test_an_extrapolation_grows_its_error_with_the_distance_and_takes_no_deeper_model_to_be_faster() -> None:
    whole = trial(num_layers=4)
    found = extrapolated(whole, *(replace(linear(proxy), step_time_interval_s=0.01) for proxy in pair(whole)))
    assert isinstance(found, Measurement)
    assert found.step_time_interval_s == pytest.approx(0.01 * (3**2 + 2**2) ** 0.5)  # t4 = 3 t2 - 2 t1
    whole = trial()
    shallow, deep = pair(whole)
    found = extrapolated(whole, replace(linear(shallow), step_time_s=1.1), replace(linear(deep), step_time_s=1.0))
    assert isinstance(found, Measurement)
    assert found.step_time_s == 1.0
    parts = {"all_reduce_s": 0.0, "all_gather_s": 0.0, "reduce_scatter_s": 0.0, "all_to_all_s": 0.0}
    rest = {**parts, "send_receive_s": 0.0, "pipeline_idle_s": 0.0, "optimizer_s": 0.1, "other_s": 0.0}
    small = Breakdown(rank=1, forward_s=1.0, backward_s=2.0, **rest)
    large = Breakdown(rank=0, forward_s=1.5, backward_s=3.0, **rest)
    found = extrapolated(whole, replace(linear(shallow), breakdown=small), replace(linear(deep), breakdown=large))
    assert isinstance(found, Measurement)
    assert found.breakdown == Breakdown(rank=0, forward_s=6.5, backward_s=13.0, **rest)


def test_a_whole_model_that_would_not_fit_ran_out_of_memory() -> None:
    whole = trial()
    fits = END_BYTES + LAYER_BYTES * whole.model.num_layers
    shallow, deep = pair(whole)
    for budget_bytes, kind in ((fits, None), (fits - 1, FailureKind.OOM)):
        budgeted = replace(whole, settings=replace(whole.settings, memory_budget_bytes=budget_bytes))
        for limited in (budgeted, replace(whole, memory_bytes=budget_bytes)):
            found = extrapolated(limited, linear(shallow), linear(deep))
            assert (found.kind if isinstance(found, TrialFailure) else None) == kind
