"""Tokens, quotas and sign-ins."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from autotuner.core.access import Caller, Quota, Scope
from autotuner.core.errors import InvalidInput, TooOften, Unauthenticated
from autotuner.service.authentication import (
    FIRST_ADMIN,
    Digests,
    Login,
    Proxy,
    Shown,
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
from autotuner.service.networks import read_networks
from autotuner.store.access import AccessStore
from autotuner.store.sql import memory_store
from tests.contracts.crowd import in_threads


# ---------------------------------------------------------------- clock
@dataclass
class SetClock:
    at: float = 1_760_000_000.0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += seconds


# ---------------------------------------------------------------- login
HOME = read_networks("127.0.0.1, 10.0.0.0/8", "AUTOTUNER_PROXY_NETWORKS")
WRONG = "at_nobody_" + 40 * "x"


class CountingDigests(Digests):
    """How many digests were judged."""

    num_judged = 0

    def is_of(self, secret: str, digest: str) -> bool:
        self.num_judged += 1
        return super().is_of(secret, digest)


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def store() -> AccessStore:
    return memory_store().access


@pytest.fixture
def counting_digests() -> CountingDigests:
    return CountingDigests()


@pytest.fixture
def tokens(store: AccessStore, clock: SetClock) -> Tokens:
    return Tokens(store=store, clock=clock)


@pytest.fixture
def login(store: AccessStore, clock: SetClock, counting_digests: Digests) -> Login:
    return Login(store, clock, digests=counting_digests)


@pytest.fixture
def proxied(store: AccessStore, clock: SetClock) -> Login:
    proxy = Proxy(header="X-Forwarded-User", networks=HOME, admins=frozenset({"root"}))
    return Login(store, clock, proxy=proxy)


def bearing(text: str, **more: Any) -> Shown:
    return Shown(address="192.0.2.7", authorization=f"Bearer {text}", **more)


# ---------------------------------------------------------------------- tokens
def test_a_token_is_whom_it_was_given_to_by_its_digest_once_and_by_its_row_each_time(
    login: Login, tokens: Tokens, counting_digests: CountingDigests
) -> None:
    token, text = tokens.add("ada", Scope.RUN, Quota(unfinished_sweeps=2))
    wanted = Caller(name="ada", scope=Scope.RUN, quota=Quota(unfinished_sweeps=2), token_id=token.id)
    assert login.caller(bearing(text)) == wanted
    assert login.caller(Shown(address="", authorization=f"bearer  {text}")) == wanted
    for _ in range(3):
        login.caller(bearing(text))
    assert counting_digests.num_judged == 1
    tokens.revoke(token.id)
    with pytest.raises(Unauthenticated, match=f"{token.id}.* of ada was revoked"):
        login.caller(bearing(text))


def test_a_token_counts_until_it_expires(login: Login, tokens: Tokens, clock: SetClock) -> None:
    _, text = tokens.add("ada", Scope.RUN, expires_at=clock.at + 10)
    login.caller(bearing(text))
    clock.at += 10
    with pytest.raises(Unauthenticated, match="has expired"):
        login.caller(bearing(text))


@pytest.mark.parametrize("shown", ["", "at_", WRONG, "x" * 10_000, "nul\x00", "half a pair \udcff"])
def test_a_text_that_is_not_a_token_is_refused_and_not_repeated(login: Login, shown: str) -> None:
    with pytest.raises(Unauthenticated) as refused:
        login.caller(bearing(shown))
    assert len(str(refused.value)) < 100


def test_a_request_with_a_missing_or_wrong_token_is_refused(login: Login, tokens: Tokens) -> None:
    (one, _), (_, other) = tokens.add("ada", Scope.RUN), tokens.add("bob", Scope.ADMIN)
    parts = read_token(other)
    assert parts is not None
    with pytest.raises(Unauthenticated, match="not known"):
        login.caller(bearing(f"at_{one.id}_{parts[1]}"))
    for shown in (Shown(address=""), Shown(address="", authorization="Basic YWRhOng=")):
        with pytest.raises(Unauthenticated, match="Bearer"):
            login.caller(shown)


def test_last_use_is_kept_to_the_minute(login: Login, tokens: Tokens, store: AccessStore, clock: SetClock) -> None:
    token, text = tokens.add("ada", Scope.RUN)
    used: list[float | None] = []
    for seconds in (0, 59, 1):
        clock.at += seconds
        login.caller(bearing(text))
        used.append(store.get_token(token.id)[0].last_used_at)
    assert used == [clock.at - 60, clock.at - 60, clock.at]


def wrong(login: Login, text: str) -> None:
    for _ in range(20):
        with pytest.raises(Unauthenticated):
            login.caller(bearing(text))
    with pytest.raises(TooOften, match=r"192\.0\.2\.7") as refused:
        login.caller(bearing(text))
    assert 1 <= refused.value.retry_after_s <= 60


def test_texts_of_no_token_make_an_address_wait_and_keep_no_token_out(login: Login, tokens: Tokens) -> None:
    wrong(login, WRONG)
    assert login.caller(bearing(tokens.add("ada", Scope.RUN)[1])).name == "ada"


def test_guesses_at_a_token_cost_so_many_digests_and_keep_that_token_alone_out_there(
    login: Login, tokens: Tokens, counting_digests: CountingDigests
) -> None:
    (token, text), (_, other) = tokens.add("ada", Scope.RUN), tokens.add("bob", Scope.RUN)
    wrong(login, f"at_{token.id}_{40 * 'x'}")
    with pytest.raises(TooOften):
        login.caller(bearing(text))
    assert counting_digests.num_judged == 20
    assert login.caller(bearing(other)).name == "bob"
    assert login.caller(Shown(address="192.0.2.8", authorization=f"Bearer {text}")).name == "ada"
    assert login.caller(bearing(text)).name == "ada"  # it was seen meanwhile


# ---------------------------------------------------------------------- sessions
def test_a_session_is_whom_its_token_is_until_it_is_closed_or_the_token_taken_back(
    login: Login, tokens: Tokens
) -> None:
    _, text = tokens.add("ada", Scope.RUN)
    _, secret = login.open_session(text, "192.0.2.7")
    assert login.caller(Shown(address="", session=secret)).name == "ada"
    login.close_session(secret)
    with pytest.raises(Unauthenticated, match="has ended"):
        login.caller(Shown(address="", session=secret))
    token, text = tokens.add("ada", Scope.RUN)
    _, secret = login.open_session(text, "")
    tokens.revoke(token.id)
    with pytest.raises(Unauthenticated):
        login.caller(Shown(address="", session=secret))


def test_no_session_is_opened_by_what_is_no_token_or_what_is_stored_of_it(login: Login, tokens: Tokens) -> None:
    session, secret = login.open_session(tokens.add("ada", Scope.RUN)[1], "")
    assert session.id != secret
    with pytest.raises(Unauthenticated):
        login.caller(Shown(address="", session=session.id))
    token, text = tokens.add("ada", Scope.RUN)
    tokens.revoke(token.id)
    for shown in (text, WRONG, "hunter2"):
        with pytest.raises(Unauthenticated):
            login.open_session(shown, "")


def test_a_session_ends_after_half_a_day_or_with_its_token(login: Login, tokens: Tokens, clock: SetClock) -> None:
    ends = [
        login.open_session(tokens.add("ada", Scope.RUN, expires_at=at)[1], "")[0].expires_at - clock.at
        for at in (None, clock.at + 60)
    ]
    assert ends == [12 * 3600, 60]
    _, secret = login.open_session(tokens.add("ada", Scope.RUN)[1], "")
    clock.at += 12 * 3600
    with pytest.raises(Unauthenticated):
        login.caller(Shown(address="", session=secret))


# ---------------------------------------------------------------------- a proxy
def named(*names: str, peer: str = "10.1.2.3", **more: Any) -> Shown:
    return Shown(address="192.0.2.7", peer=peer, names=names, **more)


def test_a_caller_is_who_the_proxy_says(proxied: Login) -> None:
    assert proxied.caller(named("ada@example.com")) == Caller(name="ada@example.com", scope=Scope.RUN)
    assert proxied.caller(named("root", peer="::ffff:127.0.0.1")).scope is Scope.ADMIN


@pytest.mark.parametrize("peer", ["192.0.2.9", "", "::1", "testclient"])
def test_nobody_else_says_who_a_caller_is(proxied: Login, peer: str) -> None:
    with pytest.raises(Unauthenticated):
        proxied.caller(named("root", peer=peer))


def test_nobody_but_the_proxy_says_who_a_caller_is_and_it_does_once(proxied: Login, login: Login) -> None:
    with pytest.raises(Unauthenticated, match="2 times"):
        proxied.caller(named("root", "ada"))
    with pytest.raises(Unauthenticated):
        login.caller(named("root"))


@pytest.mark.parametrize("name", ["", "  ", "\x00", "a" * 129])
def test_a_name_that_nobody_can_have_lets_nobody_in(proxied: Login, name: str) -> None:
    with pytest.raises(Unauthenticated):
        proxied.caller(named(name))


def test_tokens_work_beside_a_proxy_whose_own_bearer_is_none_of_ours(proxied: Login, tokens: Tokens) -> None:
    _, text = tokens.add("ci", Scope.RUN)
    assert proxied.caller(bearing(text, peer="10.0.0.1", names=("ada",))).name == "ci"
    assert proxied.caller(bearing("eyJhbGciOi.of.theirs", peer="10.0.0.1", names=("ada",))).name == "ada"


# ---------------------------------------------------------------- secret


@pytest.mark.parametrize(
    "text",
    [
        *("", "at_", "at_id_short", "bt_id_" + 32 * "x", "at_ID_" + 32 * "x", "at_id_" + 129 * "x"),
        *("at_id_" + 32 * "ß", "at_id_" + 32 * "x" + "\n", " at_id_" + 32 * "x", "at_" + 33 * "i" + "_" + 32 * "x"),
    ],
)
def test_a_text_of_another_form_is_not_a_token(text: str) -> None:
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
def plain_tokens(clock: SetClock) -> Tokens:
    return Tokens(store=memory_store().access, clock=clock)


def test_an_added_token_is_stored_without_its_secret(plain_tokens: Tokens) -> None:
    added, text = plain_tokens.add("ada", Scope.RUN, Quota(unfinished_sweeps=2), created_by="root")
    stored, digest = plain_tokens.store.get_token(added.id)
    parts = read_token(text)
    assert parts is not None
    assert (stored, parts[0], stored.created_by) == (added, added.id, "root")
    assert parts[1] not in f"{stored}{digest}"
    assert plain_tokens.digests.is_of(parts[1], digest)


@pytest.mark.parametrize("name", ["", " ada", "ada\n", "a" * 129, "nul\x00"])
def test_nobody_is_called_what_cannot_be_read(plain_tokens: Tokens, name: str) -> None:
    with pytest.raises(InvalidInput, match="name"):
        plain_tokens.add(name, Scope.READ)
    assert plain_tokens.all() == []


def test_a_token_that_would_be_expired_is_not_made(plain_tokens: Tokens, clock: SetClock) -> None:
    with pytest.raises(InvalidInput, match="future"):
        plain_tokens.add("ada", Scope.READ, expires_at=clock.at)


def test_an_admin_is_missing_where_no_token_for_one_counts(plain_tokens: Tokens, clock: SetClock) -> None:
    plain_tokens.add("ada", Scope.RUN)
    assert not plain_tokens.has_admin()
    added, _ = plain_tokens.add("root", Scope.ADMIN, expires_at=clock.at + 60)
    assert plain_tokens.has_admin()
    clock.at += 60
    assert not plain_tokens.has_admin()
    clock.at -= 60
    plain_tokens.revoke(added.id)
    assert not plain_tokens.has_admin()


# ---------------------------------------------------------------------- a token that an operator made
def test_a_token_from_a_file_is_an_admins_and_is_stored_once(plain_tokens: Tokens) -> None:
    first = plain_tokens.install(TEXT)
    assert (first.id, first.name, first.scope) == ("first", FIRST_ADMIN, Scope.ADMIN)
    assert plain_tokens.install(TEXT) == first
    assert plain_tokens.all() == [first]


def test_services_that_start_at_once_store_the_token_of_a_file_once(plain_tokens: Tokens) -> None:
    installed = in_threads(4, lambda _: plain_tokens.install(TEXT))
    assert set(installed) == set(plain_tokens.all())


def test_a_token_from_a_file_that_was_taken_back_stays_so(plain_tokens: Tokens) -> None:
    plain_tokens.install(TEXT)
    plain_tokens.revoke("first")
    assert plain_tokens.install(TEXT).revoked_at is not None
    assert not plain_tokens.has_admin()


def test_another_secret_under_a_stored_id_is_refused_and_not_quoted(plain_tokens: Tokens) -> None:
    plain_tokens.install(TEXT)
    with pytest.raises(InvalidInput, match="another secret") as refused:
        plain_tokens.install("at_first_" + 40 * "t")
    assert 40 * "t" not in str(refused.value)


@pytest.mark.parametrize("text", ["", "hunter2", "at_first_short"])
def test_a_file_without_a_token_is_refused_and_not_quoted(plain_tokens: Tokens, text: str) -> None:
    with pytest.raises(InvalidInput, match="32 random characters") as refused:
        plain_tokens.install(text)
    assert not text or text not in str(refused.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_without_a_login_a_service_listens_on_this_machine(host: str) -> None:
    check_alone(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.1", "10.0.0.1", "::ffff:192.0.2.1", "no.such.host."])
def test_without_a_login_it_listens_nowhere_else(host: str) -> None:
    with pytest.raises(InvalidInput, match="AUTOTUNER_LOGIN=tokens"):
        check_alone(host)


def test_with_tokens_it_starts_once_an_admin_has_one(plain_tokens: Tokens) -> None:
    plain_tokens.add("ada", Scope.RUN)
    with pytest.raises(InvalidInput, match="autotuner token add"):
        check_lets_an_admin_in(plain_tokens)
    plain_tokens.add("root", Scope.ADMIN)
    check_lets_an_admin_in(plain_tokens)


def test_the_token_of_a_file_is_stored_without_its_last_newline(plain_tokens: Tokens, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("at_first_" + 40 * "s" + "\n")
    install_token_file(plain_tokens, path)
    check_lets_an_admin_in(plain_tokens)


def test_a_file_that_cannot_be_read_as_a_token_is_named_and_not_quoted(plain_tokens: Tokens, tmp_path: Path) -> None:
    path = tmp_path / "token"
    for content in (None, b"\xff\xfe", b"hunter2"):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(InvalidInput, match="AUTOTUNER_ADMIN_TOKEN_FILE") as refused:
            install_token_file(plain_tokens, path)
        assert "hunter2" not in str(refused.value)
