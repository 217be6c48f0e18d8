"""Callers of a service that asks who they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx

from autotuner.core.access import Scope
from autotuner.service.build import App


def bearing(text: str) -> dict[str, str]:
    """The header that shows a token."""
    return {"Authorization": f"Bearer {text}"}


@dataclass(frozen=True, kw_only=True)
class People:
    """Who has which token of a service."""

    app: App
    address: str

    def token(self, scope: Scope = Scope.RUN, name: str = "ada", **limits: Any) -> str:
        """The text of a new token."""
        return self.app.tokens.add(name, scope, **limits)[1]

    def client(self, scope: Scope = Scope.RUN, name: str = "ada") -> httpx.Client:
        """Somebody with a token of that scope, below ``/api/v1``."""
        return httpx.Client(base_url=f"{self.address}/api/v1", headers=bearing(self.token(scope, name)), timeout=60)

    def stranger(self, **headers: str) -> httpx.Client:
        """Somebody with none, at the root of the service."""
        return httpx.Client(base_url=self.address, headers=headers, timeout=60)
