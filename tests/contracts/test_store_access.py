"""Store contract: tokens, and sessions of browsers that they opened."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autotuner.core.access import Quota, Scope, Session, Token
from autotuner.core.errors import Conflict, InvalidInput, NotFound
from autotuner.store.sql import Store
from tests.contracts.crowd import in_threads

DIGEST = "$argon2id$v=19$m=8,t=1,p=1$c2FsdA$ZGlnZXN0"
NUM_THREADS = 8


def token(token_id: str = "k3v7q2mxn5", **changes: Any) -> Token:
    return replace(Token(id=token_id, name="ada", scope=Scope.RUN, created_at=10.0), **changes)


def session(session_id: str = "a" * 64, **changes: Any) -> Session:
    value = Session(id=session_id, token_id="k3v7q2mxn5", created_at=20.0, expires_at=120.0)
    return replace(value, **changes)


def saved(store: Store, one: Token | None = None) -> Token:
    added = one or token()
    store.access.add_token(added, DIGEST)
    return added


# ---------------------------------------------------------------------- tokens
def test_a_token_is_read_as_it_was_added_with_its_digest(store: Store) -> None:
    quota = Quota(unfinished_sweeps=2, accelerator_hours_per_day=64.0, requests_per_minute=60)
    added = saved(store, token(quota=quota, created_by="root", expires_at=99.0))
    assert store.access.get_token(added.id) == (added, DIGEST)


def test_a_token_whose_id_is_taken_is_refused(store: Store) -> None:
    saved(store)
    with pytest.raises(Conflict, match="k3v7q2mxn5"):
        store.access.add_token(token(name="mallory"), DIGEST)
    assert store.access.get_token("k3v7q2mxn5")[0].name == "ada"


def test_a_token_needs_a_name_that_can_be_read(store: Store) -> None:
    with pytest.raises(InvalidInput, match="printable"):
        store.access.add_token(token(name=""), DIGEST)


@pytest.mark.parametrize("token_id", ["nobody", "nul\x00", "half a pair \ud800"])
def test_a_token_that_is_not_stored_is_missing_whatever_its_id(store: Store, token_id: str) -> None:
    for act in (lambda: store.access.get_token(token_id), lambda: store.access.revoke_token(token_id, now=1.0)):
        with pytest.raises(NotFound):
            act()


def test_tokens_are_listed_by_name_then_newest_first_revoked_ones_too(store: Store) -> None:
    for token_id, name, at in (("a", "bob", 1.0), ("b", "ada", 2.0), ("c", "ada", 3.0), ("d", "Zoe", 4.0)):
        saved(store, token(token_id, name=name, created_at=at))
    store.access.revoke_token("c", now=5.0)
    assert [one.id for one in store.access.list_tokens()] == ["d", "c", "b", "a"]


def test_a_token_is_revoked_once_and_keeps_when_that_was(store: Store) -> None:
    saved(store)
    assert store.access.revoke_token("k3v7q2mxn5", now=30.0).revoked_at == 30.0
    assert store.access.revoke_token("k3v7q2mxn5", now=40.0).revoked_at == 30.0


def test_the_last_use_of_a_token_is_kept(store: Store) -> None:
    saved(store)
    store.access.touch_token("k3v7q2mxn5", now=33.0)
    assert store.access.get_token("k3v7q2mxn5")[0].last_used_at == 33.0
    store.access.touch_token("nobody", now=33.0)


def test_of_several_who_add_one_id_at_once_one_does(store: Store) -> None:
    def add(index: int) -> bool:
        try:
            store.access.add_token(token(name=f"n{index}"), DIGEST)
        except Conflict:
            return False
        return True

    assert sum(in_threads(NUM_THREADS, add)) == 1


# ---------------------------------------------------------------------- sessions
def test_a_session_is_read_as_it_was_added_until_it_is_removed(store: Store) -> None:
    saved(store)
    store.access.add_session(session())
    assert store.access.get_session("a" * 64) == session()
    for _ in range(2):
        store.access.remove_session("a" * 64)
    with pytest.raises(NotFound) as missing:
        store.access.get_session("a" * 64)
    assert "a" * 64 not in str(missing.value)


def test_a_session_needs_a_stored_token(store: Store) -> None:
    with pytest.raises(NotFound, match="k3v7q2mxn5"):
        store.access.add_session(session())


def test_a_new_session_sweeps_out_those_that_are_over(store: Store) -> None:
    saved(store)
    store.access.add_session(session("old", created_at=1.0, expires_at=20.0))
    store.access.add_session(session("valid", created_at=2.0, expires_at=21.0))
    store.access.add_session(session("new", created_at=20.0))
    with pytest.raises(NotFound):
        store.access.get_session("old")
    assert store.access.get_session("valid").token_id == store.access.get_session("new").token_id


def test_a_revoked_token_takes_its_sessions_along_and_no_others(store: Store) -> None:
    saved(store)
    saved(store, token("other"))
    store.access.add_session(session("hers"))
    store.access.add_session(session("his", token_id="other"))
    store.access.revoke_token("k3v7q2mxn5", now=30.0)
    with pytest.raises(NotFound):
        store.access.get_session("hers")
    assert store.access.get_session("his").token_id == "other"
