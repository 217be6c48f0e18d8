"""A trainer whose steps take a stated time by the clock, so that how far two of its layouts lie apart is known.

It sleeps, and computes nothing: work for the processor takes as long as whoever else is there lets it, so that nobody
could say how much of it is slower by just 5 %. ``bench.gate_trials`` has the launcher start it.
"""

from __future__ import annotations

import time

import autotuner_report

_STEP_S = {"none": 0.0285, "full": 0.03}
"""By what is recomputed; the rate of the second is 0.95 of that of the first."""


def main() -> None:
    """As many steps as the trial asks for."""
    spec = autotuner_report.spec()
    assert spec is not None  # nothing but the launcher starts it
    step_s, settings = _STEP_S[spec["layout"]["recompute"]], spec["settings"]
    report = autotuner_report.start()
    for _ in range(settings["warmup_steps"] + settings["measured_steps"]):
        time.sleep(step_s)
        report.step()


if __name__ == "__main__":
    main()
