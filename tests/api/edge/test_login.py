"""What a service must be told before it starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from api.edge.auth import check_start
from autotuner.core.access import Scope
from autotuner.core.errors import InvalidInput
from autotuner.store.sql import memory_store
from tests.api.service import app_on

PROXY: dict[str, Any] = {"login": "proxy", "proxy_header": "X-Forwarded-User", "proxy_networks": "10.0.0.0/8"}
ANYWHERE = "0.0.0.0"


@pytest.mark.parametrize(
    ("settings", "missing"),
    [
        ({}, "AUTOTUNER_LOGIN=tokens"),
        ({"login": "tokens"}, "autotuner token add"),
        ({"login": "tokens", "admin_token_file": Path("/nothing")}, "AUTOTUNER_ADMIN_TOKEN_FILE"),
        (PROXY | {"proxy_header": None}, "AUTOTUNER_PROXY_HEADER"),
        (PROXY | {"proxy_networks": ""}, "AUTOTUNER_PROXY_NETWORKS"),
        (PROXY | {"proxy_networks": "my proxy"}, "AUTOTUNER_PROXY_NETWORKS"),
    ],
)
def test_a_service_that_would_let_in_everybody_or_nobody_does_not_start(settings: dict[str, Any], missing: str) -> None:
    with pytest.raises(InvalidInput, match=missing):
        check_start(app_on(memory_store(), **settings), ANYWHERE)


def test_a_service_starts_anywhere_once_it_can_tell_callers_apart(tmp_path: Path) -> None:
    with_tokens = app_on(memory_store(), login="tokens")
    with_tokens.tokens.add("root", Scope.ADMIN)
    file = tmp_path / "token"
    file.write_text("at_first_" + 40 * "s")
    with_a_file = app_on(memory_store(), login="tokens", admin_token_file=file)
    for app in (with_tokens, with_a_file, app_on(memory_store(), **PROXY)):
        check_start(app, ANYWHERE)
    assert [token.id for token in with_a_file.tokens.all()] == ["first"]


def test_on_a_loopback_address_nobody_needs_to_be_told_apart() -> None:
    check_start(app_on(memory_store()), "127.0.0.1")
