"""The states of a trial."""

from __future__ import annotations

from itertools import product

import pytest

from autotuner.core.runs.trial import TrialState
from autotuner.errors import Conflict

LEGAL = {
    (TrialState.QUEUED, TrialState.RUNNING),
    (TrialState.QUEUED, TrialState.CANCELLED),
    (TrialState.RUNNING, TrialState.COMPLETE),
    (TrialState.RUNNING, TrialState.PRUNED),
    (TrialState.RUNNING, TrialState.FAILED),
    (TrialState.RUNNING, TrialState.CANCELLED),
    (TrialState.RUNNING, TrialState.QUEUED),  # interrupted, to be tried again
    (TrialState.RUNNING, TrialState.WAITING),
    *((TrialState.WAITING, new) for new in TrialState),  # another reason to wait, or any end of a started trial
    (TrialState.CANCELLED, TrialState.QUEUED),  # cut short by the end of a sweep that is opened again
}


@pytest.mark.parametrize(("old", "new"), sorted(LEGAL))
def test_a_legal_step_leads_to_the_new_state(old: TrialState, new: TrialState) -> None:
    assert old.to(new) is new


@pytest.mark.parametrize(("old", "new"), sorted(set(product(TrialState, TrialState)) - LEGAL))
def test_every_other_step_is_a_conflict_that_names_both(old: TrialState, new: TrialState) -> None:
    with pytest.raises(Conflict, match=f"a {old.value} trial cannot become {new.value}"):
        old.to(new)


def test_a_finished_trial_has_no_next_state_but_one_that_was_cut_short() -> None:
    left = {old for old, _ in LEGAL if old.finished}
    assert left == {TrialState.CANCELLED}
