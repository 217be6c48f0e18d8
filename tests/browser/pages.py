"""Every page of the dashboard by its address, and a store in which all of them have something to show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.topology.read import read_topology
from autotuner.catalog.topology.topology import on_cluster
from autotuner.core.comment import CommentCreate
from autotuner.core.upkeep import RegressionGateOutcome, Verdict
from autotuner.store.options import Page as Window
from tests.announcements import webhook
from tests.api.service import NOW, StoreDriver
from tests.browser.stores import (
    finished_gate,
    finished_run,
    gated_trial,
    large_sweep,
    retune,
    slow_sweep,
    sweep_with_front,
    tried_study,
)
from tests.builders import cpu_cluster
from tests.unit.catalog.topology import published

_LONG = "nightly-retune-of-the-incumbent-layout-of-llama-3-70b-with-a-very-long-name-2026-11-21"

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
    "plan": "/plan?model=llama-3-8b&tokens=1T&deadline=20d&accelerators=h100,b200,mi355x,gh200&sizes=64",
    "plan-empty": "/plan",
    "plan-wrong": "/plan?model=llama-3-8b&tokens=1T&deadline=20&accelerators=h10",
    "predict": "/predict",
    "predict-short": "/predict?model=llama-3-8b&cluster=h100:8&layout=fsdp8 mb1 flash bf16",
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
    "support": "/support",
    "support-pair": "/support?model=llama-3-8b&accelerator=h100&stack=nemo",
    "webhooks": "/webhooks",
    "tokens": "/tokens",
    "audit": "/audit",
    "login": "/login",
    "error": "/sweeps/sw-nothing",
}
"""Pages by name; names in braces are those of ``stocked``."""


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
    gate = finished_gate(driver, RegressionGateOutcome.FAILED, 934.0, "6.6 % slower than the baseline")
    driver.store.announcements.save_webhook(webhook(name="ours"))
    driver.store.descriptions.save(cpu_cluster(name="lab"))
    pod = replace(load_cluster("a100:512@dgx-superpod"), name="pod")
    driver.store.descriptions.save(on_cluster(read_topology(published.DGX_A100), pod))
    pairs = replace(load_cluster("a100:64x4@torus-3d"), name="torus")
    driver.store.descriptions.save(on_cluster(read_topology(published.A100_PAIRS), pairs))
    trials = driver.store.list_trials(sweep.id, page=Window(limit=500))[0]
    ranked = driver.store.ranking(sweep.id, page=Window(limit=2))[0]
    failed = [trial for trial in trials if trial.failure]
    last = f"{min(num_trials, 12):04d}"
    said = CommentCreate(text="tried with NCCL 2.28\n" + 40 * "a long line of words ", tags=("baseline", _LONG))
    for place, number in enumerate((None, *(trial.number for trial in ranked[:1]))):
        driver.store.comments.add(sweep.id, replace(said, trial_number=number), now=NOW + place)
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
