from __future__ import annotations

from autotuner.domain.runs.challenge import Challenge, ChallengeFindings
from autotuner.search.sweeps.findings import findings
from autotuner.search.text.comparisons import findings_in_words
from tests.unit.search.sweeps.challenged import (
    INCUMBENT,
    TEST,
    Machine,
    challenge,
    challenged,
    faster_than_incumbent,
    nights,
)


def said(of: Challenge, machine: Machine) -> tuple[str, ...]:
    request = challenged(of)
    machine.run(request)
    return findings_in_words(findings(request, machine.trials))


def test_nothing_is_said_before_anything_ran() -> None:
    assert findings_in_words(ChallengeFindings()) == ()


def test_the_incumbent_and_the_challenger_have_a_sentence_each() -> None:
    incumbent, challenger = said(challenge(), Machine(faster_than_incumbent))
    assert incumbent.startswith(f"{INCUMBENT} reached 25.")
    assert incumbent.endswith("not slower than its baseline")
    assert f"by turns with {INCUMBENT}" in challenger
    assert challenger.endswith("better")
    assert "not known" not in challenger


def test_an_incumbent_without_a_baseline_says_so() -> None:
    (incumbent,) = said(challenge(baseline=(), searches=False), Machine())
    assert incumbent.endswith(f"MFU in {TEST.min_runs} runs, and has no baseline yet")


def test_a_layout_that_lost_is_called_slower() -> None:
    (incumbent,) = said(challenge(baseline=nights(1200.0), searches=False), Machine())
    assert incumbent.endswith(": slower than its baseline")


def test_a_challenger_that_there_was_no_time_to_run_again_says_so() -> None:
    request, machine = challenged(challenge()), Machine(faster_than_incumbent)
    machine.run(request, at_most=TEST.min_runs + 1)
    _, challenger = findings_in_words(findings(request, machine.trials))
    assert challenger.endswith("was faster when it was found, and did not run again")


def test_what_nobody_ran_is_called_simulated() -> None:
    request, machine = challenged(challenge(searches=False)), Machine()
    machine.run(request)
    (incumbent,) = findings_in_words(findings(request, machine.trials), is_simulated=True)
    assert incumbent.startswith(f"simulated: {INCUMBENT} reached")
