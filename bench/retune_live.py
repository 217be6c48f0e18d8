"""A retune lived through: a real service, a cron line of the next minutes, real trials, and a slowdown that is seeded.

``python -m bench.retune_live`` stores a retune whose cron line names three coming minutes and then only watches. The
first two runs meet the machine as it is. Before the third the service is killed (``kill -9``) and started again in an
environment in which MKL is told to be as slow as the oldest processor (``MKL_CBWR=COMPATIBLE``), as somebody does who
wants the same bits everywhere. Expected: unchanged, unchanged, regression, with that variable named. It takes as many
minutes as it prints; exit code 1 where it went otherwise.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from autotuner.launch.ranks import free_port

SLOWDOWN = {"MKL_CBWR": "COMPATIBLE"}

_EXPECTED = ["unchanged", "unchanged", "regression"]

_DEADLINE_S = 1200.0


def main() -> None:
    """Print each run as it ends, then whether all ended as expected."""
    parser = argparse.ArgumentParser(prog="python -m bench.retune_live", description=__doc__)
    parser.add_argument("--minutes", type=int, default=3, help="between two runs; each must end before the next")
    parser.add_argument("--search", type=int, default=0, help="layouts that each run tries beside the one in use")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="retune-live-") as folder:
        verdicts = _story(Path(folder), arguments.minutes, arguments.search)
    _say(f"verdicts: {', '.join(verdicts)}; expected: {', '.join(_EXPECTED)}")
    sys.exit(0 if verdicts == _EXPECTED else 1)


def _story(folder: Path, minutes: int, num_layouts: int) -> list[str]:
    port = free_port()
    client = httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1", timeout=60)
    first = 60 * (int(time.time()) // 60 + 1)
    cron = _cron_line([first + 60 * minutes * number for number in range(len(_EXPECTED))])
    verdicts: list[str] = []
    with _service(folder, port, {}) as process:
        _until(lambda: _is_ready(client))
        stored = client.post("/retunes", json=_retune(cron, num_layouts))
        stored.raise_for_status()
        _say(f"{_clock()} stored: {cron}, next due {_clock(stored.json()['next_due_at'])}; the layout in use: dp2 mb8")
        for number in range(1, len(_EXPECTED)):
            verdicts.append(_told(client, number))
        process.kill()
        process.wait()
    _say(f"{_clock()} the service is killed, and started again with {SLOWDOWN}")
    with _service(folder, port, SLOWDOWN):
        _until(lambda: _is_ready(client))
        verdicts.append(_told(client, len(_EXPECTED)))
        runs = client.get("/runs", params=_RUNS).json()
        points = client.get("/retunes/live/trend").json()["items"]
    _say(f"runs stored: {runs['total']}, for as many due times")
    for point in points:
        band = "" if point["reference"] is None else f", band {point['band_low']:.0f} to {point['band_high']:.0f}"
        _say(f"  {_clock(point['at'])} {point['tokens_per_s']:.0f} token/s of {point['num_measurements']}{band}")
    return verdicts


def _retune(cron: str, num_layouts: int) -> dict[str, Any]:
    sweep = {
        "model": "llama-demo",
        "cluster": "cpu:2",
        "workload": {"seq_len": 128, "global_batch_size": 16},
        "budget": {"num_trials": max(1, num_layouts), "wall_clock_s": 150.0, "min_gain": 0.0},
        "trial": {"profiled_steps": 0, "measuring_budget_s": 2.0, "max_repeats": 0, "max_measured_steps": 20},
    }
    layout = {
        "data_parallel_replicate_degree": 2,
        "micro_batch_size": 8,
        "precision": "fp32",
        "attention_kernel": "flash",
    }
    return {
        "name": "live",
        "cron": cron,
        "sweep": sweep,
        "incumbent": layout,
        "searches": num_layouts > 0,
        "test": {"tolerance": 0.05, "loss": 0.15, "max_runs": 12},
    }


_RUNS = {"kind": "retune", "subject": "live"}


def _told(client: httpx.Client, number: int) -> str:
    """The verdict of that run, once it has one."""
    run: dict[str, Any] = _until(lambda: _ended(client, number))
    outcome, asked = run["result"], run["request"]
    late_s = asked["started_at"] - asked["due_at"]
    began = f"due {_clock(asked['due_at'])}, {asked['trigger']}, began {late_s:.1f} s later"
    _say(f"{_clock()} run {number}: {began}: {outcome['verdict']}")
    _say(f"  {outcome['detail']}")
    for sentence in outcome["explanation"]:
        _say(f"  {sentence}")
    return str(outcome["verdict"])


def _ended(client: httpx.Client, number: int) -> dict[str, Any] | None:
    runs: list[dict[str, Any]] = client.get("/runs", params=_RUNS).json()["items"]
    begun = [run for run in reversed(runs) if not run["request"]["is_skipped"]]
    return begun[number - 1] if len(begun) >= number and begun[number - 1]["result"] else None


def _cron_line(minutes: list[int]) -> str:
    """An expression that is due at these minutes of the hour, UTC, and at none before the first of them."""
    moments = [datetime.fromtimestamp(at, UTC) for at in minutes]
    hours = sorted({moment.hour for moment in moments})
    return f"{','.join(str(m.minute) for m in moments)} {','.join(map(str, hours))} * * *"


# ---------------------------------------------------------------- the service
@contextmanager
def _service(folder: Path, port: int, variables: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    environment = os.environ | {
        "AUTOTUNER_DATABASE_URL": f"sqlite:///{folder}/autotuner.db",
        "AUTOTUNER_WORK_DIR": str(folder / "trials"),
        "AUTOTUNER_LEASE_S": "5",
        **variables,
    }
    command = [sys.executable, "-m", "autotuner.cli", "serve", "--port", str(port)]
    with (folder / "service.log").open("ab") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        yield process
    except Exception:
        _say((folder / "service.log").read_text()[-3000:])
        raise
    finally:
        process.terminate()
        process.wait()


def _is_ready(client: httpx.Client) -> bool:
    try:
        return client.get("/ready").is_success
    except httpx.TransportError:
        return False


def _until(ask: Any) -> Any:
    deadline = time.monotonic() + _DEADLINE_S
    while time.monotonic() < deadline:
        if answer := ask():
            return answer
        time.sleep(0.5)
    raise TimeoutError("the retune did not go on")


def _clock(epoch_s: float | None = None) -> str:
    return datetime.fromtimestamp(time.time() if epoch_s is None else epoch_s, UTC).strftime("%H:%M:%S")


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
