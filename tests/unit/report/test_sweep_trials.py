"""Deaths of a sweep's trials: terminal, page, Markdown and JSON carry the same figures."""

from __future__ import annotations

from dataclasses import replace

from autotuner.core import documents
from autotuner.core.trial import FailureKind, Trial
from autotuner.core.units import format_bytes
from autotuner.report.report import Report
from autotuner.report.sweep_trials import ended
from autotuner.search.results.failures import failures
from tests.builders import big_job, memory, prediction, present, sweep_request
from tests.unit.report.surfaces import surfaces
from tests.unit.search.results.trials import BASE, died, ran

REQUEST = sweep_request(job=big_job())


def shown(*trials: Trial) -> tuple[str, ...]:
    section = present(ended(failures(REQUEST, trials), trials, "sw-test"))
    return surfaces(Report(headline="", sections=(section,)))


def test_deaths_have_the_same_figures_on_every_surface() -> None:
    need = prediction(memory=memory(activations_bytes=100e9), fits=False)
    large = [replace(died(n, replace(BASE, micro_batch_size=8)), prediction=need) for n in range(4)]
    trials = [*large, *(ran(10 + n, BASE, 1.0) for n in range(6))]
    (group,) = failures(REQUEST, trials)
    written = documents.write(group)
    peak, limit = (format_bytes(written["decisive"][name]) for name in ("most", "limit"))
    assert written["way_out"]["trial"] == 10
    for text in shown(*trials):
        assert "out of memory" in text
        assert f"Predicted to need {peak} of {limit}." in text
        assert "4 of 4 have mb 8, 0 of the 6 that ran." in text
        assert "Trial 10 ran with micro-batch 8 → 1, in 10 MB." in text


def test_deaths_of_machines_say_how_often_their_trials_were_started() -> None:
    lost = [replace(died(n, BASE, FailureKind.INFRASTRUCTURE), attempts=n + 1) for n in range(3)]
    for text in shown(*lost):
        assert "Started up to 3 times." in text
        assert "Run them again once the machines are back" in text
