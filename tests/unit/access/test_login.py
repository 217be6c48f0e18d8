from __future__ import annotations

from typing import Any

import pytest

from autotuner.core.access import Caller, Quota, Scope
from autotuner.core.errors import NotLetIn, TooOften
from autotuner.service.access import Digests, Login, Proxy, Shown, Tokens, read_token
from autotuner.service.networks import read_networks
from autotuner.store.access import AccessStore
from autotuner.store.sql import memory_store
from tests.unit.access.clock import SetClock

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
def digests() -> CountingDigests:
    return CountingDigests()


@pytest.fixture
def tokens(store: AccessStore, clock: SetClock) -> Tokens:
    return Tokens(store=store, clock=clock)


@pytest.fixture
def login(store: AccessStore, clock: SetClock, digests: Digests) -> Login:
    return Login(store, clock, digests=digests)


@pytest.fixture
def proxied(store: AccessStore, clock: SetClock) -> Login:
    proxy = Proxy(header="X-Forwarded-User", networks=HOME, admins=frozenset({"root"}))
    return Login(store, clock, proxy=proxy)


def bearing(text: str, **more: Any) -> Shown:
    return Shown(address="192.0.2.7", authorization=f"Bearer {text}", **more)


# ---------------------------------------------------------------------- tokens
def test_a_token_is_whom_it_was_given_to_by_its_digest_once_and_by_its_row_each_time(
    login: Login, tokens: Tokens, digests: CountingDigests
) -> None:
    token, text = tokens.add("ada", Scope.RUN, Quota(unfinished_sweeps=2))
    wanted = Caller(name="ada", scope=Scope.RUN, quota=Quota(unfinished_sweeps=2), token_id=token.id)
    assert login.caller(bearing(text)) == wanted
    assert login.caller(Shown(address="", authorization=f"bearer  {text}")) == wanted
    for _ in range(3):
        login.caller(bearing(text))
    assert digests.num_judged == 1
    tokens.revoke(token.id)
    with pytest.raises(NotLetIn, match=f"{token.id}.* of ada was taken back"):
        login.caller(bearing(text))


def test_a_token_counts_until_it_expires(login: Login, tokens: Tokens, clock: SetClock) -> None:
    _, text = tokens.add("ada", Scope.RUN, expires_at=clock.at + 10)
    login.caller(bearing(text))
    clock.at += 10
    with pytest.raises(NotLetIn, match="has expired"):
        login.caller(bearing(text))


@pytest.mark.parametrize("shown", ["", "at_", WRONG, "x" * 10_000, "nul\x00", "half a pair \udcff"])
def test_what_is_no_token_lets_nobody_in_and_is_not_repeated(login: Login, shown: str) -> None:
    with pytest.raises(NotLetIn) as refused:
        login.caller(bearing(shown))
    assert len(str(refused.value)) < 100


def test_what_shows_no_or_another_token_lets_nobody_in(login: Login, tokens: Tokens) -> None:
    (one, _), (_, other) = tokens.add("ada", Scope.RUN), tokens.add("bob", Scope.ADMIN)
    parts = read_token(other)
    assert parts is not None
    with pytest.raises(NotLetIn, match="not known"):
        login.caller(bearing(f"at_{one.id}_{parts[1]}"))
    for shown in (Shown(address=""), Shown(address="", authorization="Basic YWRhOng=")):
        with pytest.raises(NotLetIn, match="Bearer"):
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
        with pytest.raises(NotLetIn):
            login.caller(bearing(text))
    with pytest.raises(TooOften, match=r"192\.0\.2\.7") as refused:
        login.caller(bearing(text))
    assert 1 <= refused.value.retry_after_s <= 60


def test_texts_of_no_token_make_an_address_wait_and_keep_no_token_out(login: Login, tokens: Tokens) -> None:
    wrong(login, WRONG)
    assert login.caller(bearing(tokens.add("ada", Scope.RUN)[1])).name == "ada"


def test_guesses_at_a_token_cost_so_many_digests_and_keep_that_token_alone_out_there(
    login: Login, tokens: Tokens, digests: CountingDigests
) -> None:
    (token, text), (_, other) = tokens.add("ada", Scope.RUN), tokens.add("bob", Scope.RUN)
    wrong(login, f"at_{token.id}_{40 * 'x'}")
    with pytest.raises(TooOften):
        login.caller(bearing(text))
    assert digests.num_judged == 20
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
    with pytest.raises(NotLetIn, match="over"):
        login.caller(Shown(address="", session=secret))
    token, text = tokens.add("ada", Scope.RUN)
    _, secret = login.open_session(text, "")
    tokens.revoke(token.id)
    with pytest.raises(NotLetIn):
        login.caller(Shown(address="", session=secret))


def test_no_session_is_opened_by_what_is_no_token_or_what_is_stored_of_it(login: Login, tokens: Tokens) -> None:
    session, secret = login.open_session(tokens.add("ada", Scope.RUN)[1], "")
    assert session.id != secret
    with pytest.raises(NotLetIn):
        login.caller(Shown(address="", session=session.id))
    token, text = tokens.add("ada", Scope.RUN)
    tokens.revoke(token.id)
    for shown in (text, WRONG, "hunter2"):
        with pytest.raises(NotLetIn):
            login.open_session(shown, "")


def test_a_session_ends_after_half_a_day_or_with_its_token(login: Login, tokens: Tokens, clock: SetClock) -> None:
    ends = [
        login.open_session(tokens.add("ada", Scope.RUN, expires_at=at)[1], "")[0].expires_at - clock.at
        for at in (None, clock.at + 60)
    ]
    assert ends == [12 * 3600, 60]
    _, secret = login.open_session(tokens.add("ada", Scope.RUN)[1], "")
    clock.at += 12 * 3600
    with pytest.raises(NotLetIn):
        login.caller(Shown(address="", session=secret))


# ---------------------------------------------------------------------- a proxy
def named(*names: str, peer: str = "10.1.2.3", **more: Any) -> Shown:
    return Shown(address="192.0.2.7", peer=peer, names=names, **more)


def test_a_caller_is_who_the_proxy_says(proxied: Login) -> None:
    assert proxied.caller(named("ada@example.com")) == Caller(name="ada@example.com", scope=Scope.RUN)
    assert proxied.caller(named("root", peer="::ffff:127.0.0.1")).scope is Scope.ADMIN


@pytest.mark.parametrize("peer", ["192.0.2.9", "", "::1", "testclient"])
def test_nobody_else_says_who_a_caller_is(proxied: Login, peer: str) -> None:
    with pytest.raises(NotLetIn):
        proxied.caller(named("root", peer=peer))


def test_nobody_but_the_proxy_says_who_a_caller_is_and_it_does_once(proxied: Login, login: Login) -> None:
    with pytest.raises(NotLetIn, match="2 times"):
        proxied.caller(named("root", "ada"))
    with pytest.raises(NotLetIn):
        login.caller(named("root"))


@pytest.mark.parametrize("name", ["", "  ", "\x00", "a" * 129])
def test_a_name_that_nobody_can_have_lets_nobody_in(proxied: Login, name: str) -> None:
    with pytest.raises(NotLetIn):
        proxied.caller(named(name))


def test_tokens_work_beside_a_proxy_whose_own_bearer_is_none_of_ours(proxied: Login, tokens: Tokens) -> None:
    _, text = tokens.add("ci", Scope.RUN)
    assert proxied.caller(bearing(text, peer="10.0.0.1", names=("ada",))).name == "ci"
    assert proxied.caller(bearing("eyJhbGciOi.of.theirs", peer="10.0.0.1", names=("ada",))).name == "ada"
