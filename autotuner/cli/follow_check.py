"""Watching a check of a cluster: each line as it is said."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

from rich.console import Console

from autotuner.cli.client import Client

_POLL_S = 0.5
_FINISHED = ("complete", "failed", "cancelled")


def follow_check(client: Client, check_id: str, console: Console) -> dict[str, Any]:
    """Print what is said until the check ends; returns it as it ended.

    Ctrl-C ends a check that this process runs; one that a service runs goes on.
    """
    watch = _Watch(client, check_id, console)
    try:
        return watch.to_its_end()
    except KeyboardInterrupt:
        if client.url is not None:
            watch.say(f"{check_id} goes on at {client.url}; --cancel ends it")
            raise
        watch.say("ending its jobs")
        client.post(f"/checks/{check_id}/cancel")
        return watch.to_its_end()


class _Watch:
    """Which lines were printed."""

    def __init__(self, client: Client, check_id: str, console: Console) -> None:
        self._client = client
        self._check_id = check_id
        self._console = console
        self._num_printed = 0

    def to_its_end(self) -> dict[str, Any]:
        """Look again and again."""
        while True:
            check: dict[str, Any] = self._client.get(f"/checks/{self._check_id}")
            for line in check["lines"][self._num_printed :]:
                self.say(f"{datetime.fromtimestamp(line['at'], UTC):%H:%M:%S} {line['text']}")
            self._num_printed = len(check["lines"])
            if check["state"] in _FINISHED:
                self.say(f"{self._check_id} {check['state']}")
                return check
            time.sleep(_POLL_S)

    def say(self, text: str) -> None:
        """One line."""
        self._console.print(text, highlight=False, soft_wrap=True)
