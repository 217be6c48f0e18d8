from __future__ import annotations

from pathlib import Path

import pytest

from autotuner.core.access import Scope
from autotuner.core.errors import InvalidInput
from autotuner.service.access.tokens import Tokens, check_alone, check_lets_an_admin_in, install_token_file
from autotuner.store.sql import memory_store
from tests.unit.access.clock import SetClock


@pytest.fixture
def tokens() -> Tokens:
    return Tokens(store=memory_store().access, clock=SetClock())


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_without_a_login_a_service_listens_on_this_machine(host: str) -> None:
    check_alone(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.1", "10.0.0.1", "::ffff:192.0.2.1", "no.such.host."])
def test_without_a_login_it_listens_nowhere_else(host: str) -> None:
    with pytest.raises(InvalidInput, match="AUTOTUNER_LOGIN=tokens"):
        check_alone(host)


def test_with_tokens_it_starts_once_an_admin_has_one(tokens: Tokens) -> None:
    tokens.add("ada", Scope.RUN)
    with pytest.raises(InvalidInput, match="autotuner token add"):
        check_lets_an_admin_in(tokens)
    tokens.add("root", Scope.ADMIN)
    check_lets_an_admin_in(tokens)


def test_the_token_of_a_file_is_stored_without_its_last_newline(tokens: Tokens, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("at_first_" + 40 * "s" + "\n")
    install_token_file(tokens, path)
    check_lets_an_admin_in(tokens)


def test_a_file_that_cannot_be_read_as_a_token_is_named_and_not_quoted(tokens: Tokens, tmp_path: Path) -> None:
    path = tmp_path / "token"
    for content in (None, b"\xff\xfe", b"hunter2"):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(InvalidInput, match="AUTOTUNER_ADMIN_TOKEN_FILE") as refused:
            install_token_file(tokens, path)
        assert "hunter2" not in str(refused.value)
