from __future__ import annotations

import time
from typing import Any

from api.examples.sweeps import sweep_detail
from api.examples.trials import ranking_page
from autotuner.cli.views.sweeps import sweep_view
from autotuner.domain.wire import to_dict
from tests.unit.cli.views.printed import printed


def test_the_ranking_of_a_running_sweep_begins_below_its_progress() -> None:
    sweep = to_dict(sweep_detail()) | {"state": "running"}
    lines = printed(sweep_view(sweep, to_dict(ranking_page())["items"], []), 100).splitlines()
    assert any(line.startswith("ranking by measured MFU") for line in lines)


def test_an_emulated_trial_is_shown_beside_those_without_a_rank() -> None:
    (item, *_) = to_dict(ranking_page())["items"]
    emulated = {**item, "unranked": "emulated, not ranked"}
    text = printed(sweep_view(to_dict(sweep_detail()), [], [emulated]), 200)
    assert "emulated, not ranked" in text
    assert "emulated" not in printed(sweep_view(to_dict(sweep_detail()), [], [item]), 200)


def trial(**more: Any) -> dict[str, Any]:
    (item, *_) = to_dict(ranking_page())["items"]
    return dict(item) | more


def shown(*trials: dict[str, Any], **said: str) -> str:
    notes = {one["id"]: note for one, note in zip(trials, said.values(), strict=False)}
    return printed(sweep_view(to_dict(sweep_detail()), [], trials, notes), 200)


def test_a_pruned_trial_is_shown_with_the_reason_and_its_numbers() -> None:
    detail = "18.5 % MFU, below 50 % of the best so far, 41.0 % MFU"
    stopped = {"reason": "pruned", "detail": detail}
    assert detail in shown(trial(state="pruned", measured=None, stopped=stopped))


def test_a_trial_whose_loss_gate_failed_is_shown_beside_those_without_a_rank_with_what_was_found() -> None:
    text = shown(trial(gate_outcome="failed", unranked="loss gate failed: the candidate's loss is no number"))
    assert "loss gate failed: the candidate's loss is no number" in text


def test_a_note_stands_beside_the_trial_that_runs_or_is_gated() -> None:
    running = trial(state="running", measured=None)
    assert "run 2 of 3, for the noise" in shown(running, said="run 2 of 3, for the noise")
    assert "training beside dp2" in shown(trial(gate_outcome="not_gated"), said="loss gate: training beside dp2")
    waiting = trial(gate_outcome="not_gated", unranked="loss not gated: none has looked at it")
    assert "training beside dp2" in shown(waiting, said="loss gate: training beside dp2")


def test_trials_of_which_there_is_no_reason_to_give_have_no_column_for_it() -> None:
    assert "why" not in shown(trial(state="running", measured=None, jobs=[]))


def test_how_large_the_model_is_and_what_of_it_is_approximated_is_said() -> None:
    sweep = to_dict(sweep_detail()) | {"caveats": ["its vision tower is left out"]}
    text = printed(sweep_view(sweep, [], []), 200)
    assert "llama-3-8b (8.03B parameters) on h100:8: complete" in text
    assert "Of the predictions: Its vision tower is left out." in text


def test_a_sweep_of_a_registered_trainer_names_it() -> None:
    sweep = to_dict(sweep_detail())
    assert "trained by" not in printed(sweep_view(sweep, [], []), 200)
    assert "trained by finetune" in printed(sweep_view({**sweep, "trainer": "finetune"}, [], []), 200)


def test_a_running_trial_says_how_its_job_stands() -> None:
    assert "slurm job 4711 ran 43 s, after 10 s in the queue" in shown(trial(state="running", measured=None))


def test_a_trial_that_waits_for_devices_says_why_and_for_how_long() -> None:
    waiting = {"reason": "waits until trials that run on this machine have ended", "since": time.time() - 600.5}
    assert "waits until trials that run on this machine have ended, 10 min" in shown(
        trial(state="waiting", measured=None, jobs=[], waiting=waiting)
    )


def test_a_sweep_that_waits_for_a_worker_says_so_and_for_how_long() -> None:
    waiting = {"reason": "waits for a worker: its worker gives no sign of life", "since": time.time() - 600.5}
    sweep = to_dict(sweep_detail()) | {"state": "running", "stop_reason": None, "stop_detail": "", "waiting": waiting}
    text = printed(sweep_view(sweep, [], []), 200)
    assert ": waiting; " in text
    assert "; waits for a worker: its worker gives no sign of life, 10 min" in text


def test_what_a_sweep_compares_is_said_and_its_repeats_are_not_listed_as_trials_without_a_rank() -> None:
    said = "dp2 reached 41.0 % MFU in 4 runs"
    sweep = to_dict(sweep_detail()) | {"said": [said], "stop_reason": "compared", "stop_detail": said}
    text = printed(sweep_view(sweep, [], [trial(repeats=0)]), 200)
    assert f"compared: {said}" in text
    assert text.count(said) == 1
    assert "state" not in text
