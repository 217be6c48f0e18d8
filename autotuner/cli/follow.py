"""Watching a sweep: live on a terminal, a line per finished trial elsewhere."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console
from rich.live import Live

from autotuner.cli.client import Client
from autotuner.cli.views.sweeps import sweep_view
from autotuner.errors import StoreUnavailable
from autotuner.search.text.sentences import expected_mfu

__all__ = ["follow"]

_POLL_S = 0.5
_RESTART_S = 60.0
"""How long a service may be away, killed and started again, before its sweep is given up on."""

_FINISHED = ("complete", "cancelled", "failed")


def follow(client: Client, sweep_id: str, console: Console) -> dict[str, Any]:
    """Show the sweep until it ends; returns it as it ended."""
    return _live(client, sweep_id, console) if console.is_terminal else _lines(client, sweep_id, console)


def _live(client: Client, sweep_id: str, console: Console) -> dict[str, Any]:
    with Live(console=console, transient=True, auto_refresh=False) as live:
        while True:
            sweep, trials, ranking = _state(client, sweep_id)
            live.update(sweep_view(sweep, ranking, [t for t in trials if t["state"] != "queued"]), refresh=True)
            if sweep["state"] in _FINISHED:
                return sweep
            time.sleep(_POLL_S)


def _lines(client: Client, sweep_id: str, console: Console) -> dict[str, Any]:
    at = f"at {client.url}/sweeps/{sweep_id}" if client.url else "with `autotuner serve`, in a browser"
    console.print(f"{sweep_id}: watch it {at}", highlight=False, soft_wrap=True)
    told: set[str] = set()
    while True:
        sweep, trials, _ = _state(client, sweep_id)
        for trial in trials:
            if trial["state"] not in ("queued", "running") and trial["id"] not in told:
                told.add(trial["id"])
                console.print(_line(trial, sweep), highlight=False, soft_wrap=True)
        if sweep["state"] in _FINISHED:
            return sweep
        time.sleep(_POLL_S)


def _state(client: Client, sweep_id: str) -> tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]]]:
    """The sweep, all its trials and the top of its ranking; a service that restarts is waited for."""
    give_up_at = time.monotonic() + _RESTART_S
    while True:
        try:
            ranking = client.get(f"/sweeps/{sweep_id}/ranking", limit=10)["items"]
            return client.get(f"/sweeps/{sweep_id}"), client.all(f"/sweeps/{sweep_id}/trials")["items"], ranking
        except StoreUnavailable:
            if time.monotonic() >= give_up_at:
                raise
            time.sleep(_POLL_S)


def _line(trial: dict[str, Any], sweep: dict[str, Any]) -> str:
    seconds = (trial["finished_at"] or 0.0) - (trial["started_at"] or 0.0)
    head = f"trial {trial['number'] + 1:>2}/{sweep['budget']['num_trials']} {trial['state']:<9}"
    tail = f"  [{seconds:.1f} s, {trial['id']}]"
    if measured := trial["measured"]:
        predicted = expected_mfu(trial["predicted"]["mfu"], trial["predicted"]["relative_error"])
        mfu = f"MFU {expected_mfu(measured['mfu'], None)} measured, {predicted} predicted"
        return f"{head} {mfu}  {trial['label']}{tail}"
    why = f"  {trial['failure']['kind']}: {trial['failure']['message']}" if trial["failure"] else ""
    return f"{head} {trial['label']}{why}{tail}"
