"""How often the detector takes this machine's noise for a slow link or rank: prints alarms by kind in healthy steps.

Four gloo processes whose stages sleep, so that whatever else runs on the machine is the noise. Thresholds are for one
alarm in 10,000 steps; short passes are the hardest case, as a delay matters from half a forward pass on.

    python -m bench.false_alarms               # 10,000 steps of 2 ms passes, some minutes
    python -m bench.false_alarms 2000 0.001    # so many steps of so long passes
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path
from statistics import median

from autotuner.training.pipelines.steering import Powers
from bench.sleeping_pipeline import Lived, Run, live

_DATA = Path(__file__).parent / "data" / "false_alarms.json"


def healthy_run(num_steps: int, pass_s: float) -> Run:
    """Steps in which nothing happens, and whose detector only reports."""
    watching = Powers(may_replan=False)
    return Run(num_steps=num_steps, pass_s=pass_s, num_micro_batches=4, num_delegates=1, powers=watching)


def alarms(lived: Lived) -> dict[str, int]:
    """Events by kind: none of them tells of anything that was done."""
    return dict(Counter(event.kind.value for event in lived.events))


def main() -> None:
    """Run, print and keep the figures."""
    num_steps, pass_s = (int(sys.argv[1]), float(sys.argv[2])) if len(sys.argv) > 2 else (10_000, 0.002)
    lived = live(healthy_run(num_steps, pass_s))
    found = {
        "steps": num_steps,
        "pass_s": pass_s,
        "median_step_s": round(median(lived.steps_s), 5),
        "longest_step_s": round(max(lived.steps_s), 5),
        "load_per_core": round(os.getloadavg()[1] / (os.cpu_count() or 1), 2),
        "alarms": alarms(lived),
        "alarms_of_links_per_10000_steps": round(1e4 * _of_links(lived) / num_steps, 2),
    }
    line = json.dumps(found)
    print(line, flush=True)  # noqa: T201  # a benchmark prints its result
    if num_steps >= 10_000:
        _DATA.write_text(line + "\n")


def _of_links(lived: Lived) -> int:
    """A recovery is the end of an alarm, and none of its own."""
    return alarms(lived).get("link_slow", 0) + alarms(lived).get("link_dead", 0)


if __name__ == "__main__":
    main()
