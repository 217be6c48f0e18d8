from __future__ import annotations

import pytest

from autotuner.aside.asides import Inline
from autotuner.core import wire
from autotuner.core.errors import Busy
from autotuner.search.planning.plan import Plan
from autotuner.search.planning.plan_run import PlanRun
from autotuner.store.sql import SqlStore, memory_store
from tests.clocks import ManualClock
from tests.unit.search.planning.requests import request_of

REQUEST = request_of(accelerators=("h100",), sizes=(16,))


@pytest.fixture
def store() -> SqlStore:
    """With a plan that ``a`` has claimed."""
    store = memory_store()
    store.plans.add("plan", wire.dumps(REQUEST), now=1.0)
    store.plans.claim("plan", owner="a", now=1.0, lease_s=10.0)
    return store


def run_of(store: SqlStore) -> PlanRun:
    return PlanRun("plan", store.plans, ManualClock(), owner="a", lease_s=10.0)


def test_what_a_plan_says_is_stored_with_how_far_it_came(store: SqlStore) -> None:
    run_of(store).run(REQUEST, Inline())
    plan = store.plans.get("plan")
    assert wire.loads(Plan, plan.answer or "").num_compared == 1
    assert (plan.computed_at, plan.owner) == (1000.0, None)
    assert plan.num_done == plan.num_known > 0


def test_a_plan_that_another_took_over_is_left_to_it(store: SqlStore) -> None:
    taken = store.plans.claim("plan", owner="b", now=2.0, lease_s=10.0, lapsed=store.plans.held())
    run_of(store).run(REQUEST, Inline())
    assert store.plans.get("plan") == taken


def test_a_run_that_is_told_to_stop_gives_its_plan_back(store: SqlStore) -> None:
    run = run_of(store)
    run.request_stop()
    with pytest.raises(Busy, match="ask again"):
        run.run(REQUEST, Inline())
    plan = store.plans.get("plan")
    assert (plan.owner, plan.answer) == (None, None)
