"""The benches of the test behind gates: what they draw, count and judge."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from autotuner.domain.runs.comparison import Decision
from bench.gate_power import Scenario, Tally, simulated
from bench.gate_sources import SLOWER, SOURCES
from bench.gate_trials import Block, judge


def block(seed: int, loss: float) -> Block:
    rng = np.random.default_rng(seed)
    baseline, equal, slower = (tuple(mean * np.exp(0.003 * rng.standard_normal(5))) for mean in (100, 100, 100 - loss))
    return Block(lane=0, at=float(seed), baseline=baseline, equal=equal, slower=slower, foreign_share=0.1)


def test_a_tally_counts_every_end_and_the_runs_that_it_took() -> None:
    tally = Tally.of([(Decision.SLOWER, 3), (Decision.UNDECIDED, 40), (Decision.SLOWER, 5), (Decision.NOT_SLOWER, 4)])
    assert tally.num_decisions == 4
    assert tally.in_words() == "50.0 % | 25.0 % | 25.0 % | 13.0, 40"


@pytest.mark.parametrize("tail", ["normal", "heavy", "one-sided", "disturbed 5 %", "correlated", "drift by turns"])
def test_quiet_pairs_are_told_apart_however_their_runs_scatter(tail: str) -> None:
    scenario = Scenario(noise=0.002, tail=tail, baseline=(40,) if tail == "drift by turns" else (10,))  # type: ignore[arg-type]
    assert simulated(scenario, 0.0, 10).not_slower >= 9
    assert simulated(scenario, 0.05, 10).slower >= 8  # disturbed runs hide a loss now and then


def test_recorded_blocks_are_judged_apart_and_say_how_much_slower_the_layout_was(
    capsys: pytest.CaptureFixture[str],
) -> None:
    judge([block(seed, loss=5.0) for seed in range(6)], "the other layout")
    said = capsys.readouterr().out
    assert "the slower layout lost 5." in said or "the slower layout lost 4.9" in said
    assert "| the same layout again | 6 | 0.0 % | 100.0 % | 0.0 % |" in said
    assert "| the other layout | 6 | 100.0 % | 0.0 % | 0.0 % |" in said
    assert "| the same layout, its rates times 0.95 | 6 | 100.0 % | 0.0 % | 0.0 % |" in said


def test_a_paced_trial_is_measured_by_the_launcher_and_takes_what_its_layout_says(tmp_path: Path) -> None:
    source = SOURCES["paced"]
    with closing(source.launcher(tmp_path)) as launcher:
        measured = source.run(launcher, SLOWER)
    assert measured.num_steps == source.settings.measured_steps
    assert measured.step_time_s >= 0.03  # a sleep is never shorter than it was asked to be
