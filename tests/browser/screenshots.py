"""Every page as people see it: ``python -m tests.browser.screenshots FOLDER`` writes a PNG of each.

In light, dark and on a phone, with 0, 1, 12 and 1,000 trials, with failures and very long names. They are there to be
looked at; what a program can tell of a page is tested beside this file.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.topology.read import read_topology
from autotuner.catalog.topology.topology import on_cluster
from autotuner.core.upkeep import MfuGateOutcome, Verdict
from autotuner.store.options import Page as Window
from autotuner.store.sql import memory_store
from tests.announcements import webhook
from tests.api.service import NOW, FixedClock, StoreDriver, app_on, serve
from tests.browser.in_use import DAY_S, finished_gate, finished_run, retune
from tests.browser.judged import gated_trial, sweep_with_front, tried_study
from tests.browser.large import large_sweep
from tests.browser.slow import slow_sweep
from tests.builders import cpu_cluster
from tests.unit.catalog.topology import published

_LONG = "nightly-retune-of-the-incumbent-layout-of-llama-3-70b-with-a-very-long-name-2026-11-21"

_LOOKS: Mapping[str, Mapping[str, Any]] = {
    "light": {"viewport": {"width": 1440, "height": 900}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1440, "height": 900}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light", "device_scale_factor": 2},
}

PAGES: Mapping[str, str] = {
    "home": "/",
    "home-searched": "/?q=llama&state=complete",
    "home-nothing": "/?q=nothing-is-called-so",
    "find": "/find?q=tp4",
    "sweep": "/sweeps/{sweep}",
    "sweep-running": "/sweeps/{running}",
    "trial": "/trials/{trial}",
    "trial-failed": "/trials/{failed}",
    "trial-running": "/trials/{running}-{last}",
    "sweep-front": "/sweeps/{front}",
    "sweep-front-asked": "/sweeps/{sweep}?metrics=mfu,tokens_per_dollar,simplicity&profile=mfu=1",
    "sweep-front-refused": "/sweeps/{front}?metrics=mfu,robustness",
    "trial-gated": "/trials/{gated}",
    "layers": "/sweeps/{sweep}/layers",
    "sweep-slow": "/sweeps/{slow}",
    "trial-slow": "/trials/{slow}-0000",
    "trial-late": "/trials/{late}-0000",
    "explore": "/explore",
    "explore-slow": "/explore?model=llama-3-8b&cluster=h100:8&global_batch_size=16&layout=pp4 dp2&link_health=2_4;0.01",
    "phases": "/phases",
    "phases-short": "/phases?tokens=2e8&global_batch_size=512",
    "explore-nodes": "/explore?model=llama-3-8b&cluster=h100:16&seq_len=2048&layout=dp2 fsdp8 reshard",
    "explore-lengths": "/explore?model=llama-3-8b&cluster=h100:8&global_batch_size=64&lengths=1-512:6,4096:2,8192:1",
    "plan": "/plan?model=llama-3-8b&tokens=1T&deadline=20d&accelerators=h100,b200,mi355x,gh200",
    "plan-empty": "/plan",
    "plan-wrong": "/plan?model=llama-3-8b&tokens=1T&deadline=20&accelerators=h10",
    "phases-wrong": "/phases?tokens=many&phases=main: 90 %25; batch 7x",
    "studies": "/optimizer-studies",
    "study": "/optimizer-studies/{study}",
    "new": "/new",
    "new-clone": "/new?clone={sweep}",
    "new-slow": "/new?clone={slow}",
    "compare": "/compare?of={trial}&of={other}",
    "retunes": "/retunes",
    "retune": "/retunes/nightly",
    "gates": "/gates",
    "gate": "/gates/{gate}",
    "clusters": "/clusters",
    "cluster": "/clusters/lab",
    "cluster-pod": "/clusters/pod",
    "cluster-torus": "/clusters/torus",
    "explore-network": "/explore?model=llama-3-70b&cluster=h100:512@fat-tree-4to1&layout=dp8 fsdp8 tp8 mb1",
    "engines": "/engines",
    "trainers": "/trainers",
    "calibrations": "/calibrations",
    "webhooks": "/webhooks",
    "tokens": "/tokens",
    "audit": "/audit",
    "login": "/login",
    "error": "/sweeps/sw-nothing",
}
"""Pages by name; names in braces are those of ``stocked``."""

_COMPUTED_MS = 120_000.0
"""Plans take seconds, and longer where three of them are computed beside each other."""

_OF_TRIALS = (
    "home",
    "sweep",
    "sweep-running",
    "sweep-front",
    "trial",
    "trial-failed",
    "layers",
    "compare",
    "find",
    "study",
)
"""Pages that look otherwise with another number of trials; the others are taken once."""


def stocked(driver: StoreDriver, num_trials: int) -> dict[str, str]:
    """Fill the store for every page; what their addresses name."""
    sweep = large_sweep(driver, num_trials, name="llama-3-70b, longer context")
    running = large_sweep(driver, min(num_trials, 12), name=_LONG, num_running=1, finished=False)
    front, gated, study = (
        sweep_with_front(driver, num_trials),
        gated_trial(driver),
        tried_study(driver, min(num_trials, 12)),
    )
    slow, late = slow_sweep(driver), slow_sweep(driver, has_trace=False)
    retune(driver)
    for night in range(12):
        verdict = Verdict.REGRESSION if night > 9 else Verdict.UNCHANGED
        finished_run(driver, verdict, 1000.0 - 33 * (night > 9) + night % 3, "as before", "nightly", night)
    gate = finished_gate(driver, MfuGateOutcome.FAILED, 934.0, "6.6 % slower than the baseline")
    driver.store.announcements.save_webhook(webhook(name="ours"))
    driver.store.save_cluster(cpu_cluster(name="lab"))
    pod = replace(load_cluster("a100:512@dgx-superpod"), name="pod")
    driver.store.save_cluster(on_cluster(read_topology(published.DGX_A100), pod))
    pairs = replace(load_cluster("a100:64x4@torus-3d"), name="torus")
    driver.store.save_cluster(on_cluster(read_topology(published.A100_PAIRS), pairs))
    trials = driver.store.list_trials(sweep.id, page=Window(limit=500))[0]
    ranked = driver.store.ranking(sweep.id, page=Window(limit=2))[0]
    failed = [trial for trial in trials if trial.failure]
    last = f"{min(num_trials, 12):04d}"
    named = {"slow": slow.id, "late": late.id, "sweep": sweep.id, "running": running.id, "last": last, "gate": gate.id}
    best = ranked[0].id if ranked else f"{running.id}-{last}"
    return named | {
        "front": front.id,
        "gated": gated.id,
        "study": study.id,
        "trial": best,
        "other": ranked[-1].id if ranked else best,
        "failed": failed[0].id if failed else best,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Take the pictures; how many there are is printed."""
    parser = argparse.ArgumentParser(prog="python -m tests.browser.screenshots", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="*", choices=PAGES, default=list(PAGES), help="which pages; all by default")
    parser.add_argument("--trials", nargs="*", type=int, default=[0, 1, 12, 1000])
    parser.add_argument("--looks", nargs="*", choices=_LOOKS, default=list(_LOOKS))
    chosen = parser.parse_args(arguments)
    chosen.folder.mkdir(parents=True, exist_ok=True)
    executable = shutil.which("chromium") or shutil.which("google-chrome")
    with ExitStack() as stack:
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=executable, args=["--headless", "--no-sandbox"])
        stack.callback(browser.close)
        taken = [path for number in chosen.trials for path in _taken(browser, number, chosen)]
    sys.stdout.write(f"{len(taken)} pictures in {chosen.folder}\n")
    return 0


def _taken(browser: Browser, num_trials: int, chosen: argparse.Namespace) -> Iterator[Path]:
    driver = StoreDriver(store=memory_store())
    names = stocked(driver, num_trials)
    is_first = num_trials == chosen.trials[0]
    pages = [name for name in chosen.only if is_first or name in _OF_TRIALS]
    with serve(app_on(driver.store, clock=FixedClock(NOW + 13 * DAY_S))) as address:
        for look in chosen.looks:
            context = browser.new_context(base_url=address, **_LOOKS[look])
            page = context.new_page()
            for name in pages:
                page.goto(PAGES[name].format(**names))
                page.wait_for_timeout(400)  # what a script fetches is there by then
                page.wait_for_selector("#computing", state="detached", timeout=_COMPUTED_MS)
                path = chosen.folder / f"{name}-{num_trials}-{look}.png"
                page.screenshot(path=path, full_page=True)
                yield path
            context.close()


if __name__ == "__main__":
    sys.exit(main())
