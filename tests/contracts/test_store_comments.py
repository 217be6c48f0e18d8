"""Store contract: comments on sweeps and their trials, and the sweeps that their tags find."""

from __future__ import annotations

import pytest

from autotuner.core.access import Caller, Scope
from autotuner.core.comment import CommentCreate
from autotuner.core.errors import NotFound, NotOwner
from autotuner.store.options import Page, SweepFilter
from autotuner.store.sql import Store
from tests.contracts.acts import add, create, held_sweep

ADA, BOB = (Caller(name=name, scope=Scope.RUN) for name in ("ada", "bob"))


def note(text: str = "", *tags: str, trial: int | None = None) -> CommentCreate:
    return CommentCreate(text=text, tags=tags, trial_number=trial)


def tagged(store: Store, tag: str) -> set[str]:
    return {sweep.id for sweep in store.list_overviews(now=20.0, where=SweepFilter(tag=tag))[0]}


def test_comments_are_listed_newest_first_those_of_a_sweep_or_of_one_of_its_trials(store: Store) -> None:
    sweep, other = held_sweep(store), create(store)
    trial = add(store, sweep, 3)
    first = store.comments.add(sweep.id, note("first\nof two lines", "paper", "A.b"), now=1.0, caller=ADA)
    of_trial = store.comments.add(sweep.id, note("bad link", trial=trial.number), now=3.0)
    last = store.comments.add(sweep.id, note("", "baseline"), now=4.0)
    store.comments.add(other.id, note("elsewhere"), now=2.0)
    assert (first.text, first.tags, first.created_by) == ("first\nof two lines", ("paper", "A.b"), "ada")
    assert store.comments.list(sweep.id) == ([last, of_trial, first], 3)
    assert store.comments.list(sweep.id, trial_number=trial.number) == ([of_trial], 1)
    assert store.comments.list(sweep.id, page=Page(limit=1, offset=1)) == ([of_trial], 3)


def test_a_comment_needs_the_sweep_and_the_trial_that_it_is_about(store: Store) -> None:
    sweep = create(store)
    for sweep_id, trial in (("sw-none", None), (sweep.id, 7)):
        with pytest.raises(NotFound, match="sw-none" if trial is None else f"{sweep.id}-0007"):
            store.comments.add(sweep_id, note("hello", trial=trial), now=1.0)
    with pytest.raises(NotFound):
        store.comments.list("sw-none")
    assert store.comments.list(sweep.id) == ([], 0)


def test_a_comment_is_removed_by_who_wrote_it_and_by_an_admin_alone(store: Store) -> None:
    sweep = create(store, name="of bob")
    first, second = (store.comments.add(sweep.id, note("mine"), now=at, caller=ADA) for at in (1.0, 2.0))
    with pytest.raises(NotOwner, match="'ada' made it"):
        store.comments.remove(first.id, caller=BOB)
    assert store.comments.remove(first.id, caller=ADA) == first
    assert store.comments.remove(second.id) == second
    with pytest.raises(NotFound, match=first.id):
        store.comments.remove(first.id, caller=ADA)
    assert store.comments.list(sweep.id) == ([], 0)


def test_a_tag_finds_its_sweeps_in_any_case_of_letters_and_no_part_of_it_does(store: Store) -> None:
    second, first, _ = held_sweep(store), create(store), create(store)
    trial = add(store, second)
    removed = store.comments.add(first.id, note("", "Baseline", "paper"), now=1.0)
    store.comments.add(first.id, note("baseline100 in a text is no tag", "x"), now=1.0)
    store.comments.add(second.id, note("", "baseline", "a_b", trial=trial.number), now=1.0)
    assert tagged(store, "baseline") == tagged(store, "BASELINE") == {first.id, second.id}
    assert (
        tagged(store, "base") == tagged(store, "baseline100") == tagged(store, "a.b") == tagged(store, "axb") == set()
    )
    store.comments.remove(removed.id)
    assert tagged(store, "baseline") == {second.id}


def test_an_overview_has_the_tags_of_its_sweep_and_trials_once_and_in_order(store: Store) -> None:
    sweep, other = held_sweep(store), create(store)
    trial = add(store, sweep)
    store.comments.add(sweep.id, note("", "paper", "Baseline"), now=1.0)
    store.comments.add(sweep.id, note("", "baseline", "a_b", trial=trial.number), now=2.0)
    store.comments.add(sweep.id, note("a text without tags"), now=3.0)
    listed, _ = store.list_overviews(now=20.0)
    tags = {one.id: one.tags for one in listed}
    assert tags == {sweep.id: ("a_b", "baseline", "paper"), other.id: ()}
