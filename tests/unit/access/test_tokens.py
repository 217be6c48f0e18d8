"""Tokens, and what a service asks before it starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotuner.core.access import Quota, Scope
from autotuner.core.errors import InvalidInput
from autotuner.service.access import (
    FIRST_ADMIN,
    Digests,
    Tokens,
    check_alone,
    check_lets_an_admin_in,
    fingerprint,
    install_token_file,
    new_secret,
    new_token_id,
    read_token,
    token_text,
    without_tokens,
)
from autotuner.store.sql import memory_store
from tests.contracts.crowd import in_threads
from tests.unit.access.clock import SetClock

# ---------------------------------------------------------------- secret


@pytest.mark.parametrize(
    "text",
    [
        *("", "at_", "at_id_short", "bt_id_" + 32 * "x", "at_ID_" + 32 * "x", "at_id_" + 129 * "x"),
        *("at_id_" + 32 * "ß", "at_id_" + 32 * "x" + "\n", " at_id_" + 32 * "x", "at_" + 33 * "i" + "_" + 32 * "x"),
    ],
)
def test_what_has_another_form_is_no_token(text: str) -> None:
    assert read_token(text) is None


def test_secrets_are_long_differ_and_are_left_out_of_what_is_written_down() -> None:
    made = {new_secret() for _ in range(100)}
    assert len(made) == 100
    assert min(map(len, made)) >= 43
    text = token_text("k3v7q2mxn5", new_secret())
    assert without_tokens(f"/api/v1/tokens/{text}/revoke") == "/api/v1/tokens/at_k3v7q2mxn5_…/revoke"
    assert without_tokens("/clusters/at_home") == "/clusters/at_home"
    token_id, secret = new_token_id(), new_secret()
    assert read_token(token_text(token_id, secret)) == (token_id, secret)


def test_a_digest_is_of_its_secret_alone_and_a_fingerprint_tells_secrets_apart() -> None:
    digests, secret = Digests(), new_secret()
    digest = digests.of(secret)
    assert digest.startswith("$argon2id$")
    assert secret not in digest
    assert digests.is_of(secret, digest)
    assert not digests.is_of(new_secret(), digest)
    assert not digests.is_of(secret, "no digest")
    assert fingerprint("a") != fingerprint("b")
    assert len(fingerprint("half a pair \udc80")) == 64


# ---------------------------------------------------------------- tokens
TEXT = "at_first_" + 40 * "s"


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def tokens(clock: SetClock) -> Tokens:
    return Tokens(store=memory_store().access, clock=clock)


def test_an_added_token_is_stored_without_its_secret(tokens: Tokens) -> None:
    added, text = tokens.add("ada", Scope.RUN, Quota(unfinished_sweeps=2), created_by="root")
    stored, digest = tokens.store.get_token(added.id)
    parts = read_token(text)
    assert parts is not None
    assert (stored, parts[0], stored.created_by) == (added, added.id, "root")
    assert parts[1] not in f"{stored}{digest}"
    assert tokens.digests.is_of(parts[1], digest)


@pytest.mark.parametrize("name", ["", " ada", "ada\n", "a" * 129, "nul\x00"])
def test_nobody_is_called_what_cannot_be_read(tokens: Tokens, name: str) -> None:
    with pytest.raises(InvalidInput, match="name"):
        tokens.add(name, Scope.READ)
    assert tokens.all() == []


def test_a_token_that_would_be_expired_is_not_made(tokens: Tokens, clock: SetClock) -> None:
    with pytest.raises(InvalidInput, match="future"):
        tokens.add("ada", Scope.READ, expires_at=clock.at)


def test_an_admin_is_missing_where_no_token_for_one_counts(tokens: Tokens, clock: SetClock) -> None:
    tokens.add("ada", Scope.RUN)
    assert not tokens.has_admin()
    added, _ = tokens.add("root", Scope.ADMIN, expires_at=clock.at + 60)
    assert tokens.has_admin()
    clock.at += 60
    assert not tokens.has_admin()
    clock.at -= 60
    tokens.revoke(added.id)
    assert not tokens.has_admin()


# ---------------------------------------------------------------------- a token that an operator made
def test_a_token_from_a_file_is_an_admins_and_is_stored_once(tokens: Tokens) -> None:
    first = tokens.install(TEXT)
    assert (first.id, first.name, first.scope) == ("first", FIRST_ADMIN, Scope.ADMIN)
    assert tokens.install(TEXT) == first
    assert tokens.all() == [first]


def test_services_that_start_at_once_store_the_token_of_a_file_once(tokens: Tokens) -> None:
    installed = in_threads(4, lambda _: tokens.install(TEXT))
    assert set(installed) == set(tokens.all())


def test_a_token_from_a_file_that_was_taken_back_stays_so(tokens: Tokens) -> None:
    tokens.install(TEXT)
    tokens.revoke("first")
    assert tokens.install(TEXT).revoked_at is not None
    assert not tokens.has_admin()


def test_another_secret_under_a_stored_id_is_refused_and_not_quoted(tokens: Tokens) -> None:
    tokens.install(TEXT)
    with pytest.raises(InvalidInput, match="another secret") as refused:
        tokens.install("at_first_" + 40 * "t")
    assert 40 * "t" not in str(refused.value)


@pytest.mark.parametrize("text", ["", "hunter2", "at_first_short"])
def test_a_file_without_a_token_is_refused_and_not_quoted(tokens: Tokens, text: str) -> None:
    with pytest.raises(InvalidInput, match="32 random characters") as refused:
        tokens.install(text)
    assert not text or text not in str(refused.value)


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
