from __future__ import annotations

from dataclasses import replace

from pydantic import TypeAdapter

from api.dashboard.charts.plan_front import plan_front
from api.openapi import examples
from api.schemas import PlanView
from autotuner.core.documents import Document
from autotuner.search.planning.layouts import Interval
from autotuner.search.planning.plan import Candidate
from autotuner.search.planning.request import Goal

DAY_S = 86_400.0


def cluster(name: str, days: float, dollars: float, *, is_on_front: bool) -> Candidate:
    answer = TypeAdapter(Document[PlanView]).validate_python(examples()["read_plan"]["answer"]).answer
    assert answer is not None
    one = answer.contenders[0]
    run = replace(one.predicted, time_s=Interval.of(days * DAY_S, 0.2), cost=Interval.of(dollars, 0.2))
    return replace(one, cluster=name, is_on_front=is_on_front, predicted=run)


FOUND = (
    cluster("fast", 10, 2e6, is_on_front=True),
    cluster("cheap", 40, 1e6, is_on_front=True),
    cluster("beaten", 45, 3e6, is_on_front=False),
)
GOAL = Goal(num_tokens=1e12, deadline_s=30 * DAY_S)


def test_the_front_is_named_and_what_it_beats_is_not() -> None:
    drawn = plan_front(FOUND, GOAL, 896)
    assert ">fast</text>" in drawn
    assert ">cheap</text>" in drawn
    assert ">beaten</text>" not in drawn
    assert "beaten: 45 days, $3M" in drawn  # what a pointer is told


def test_the_deadline_and_intervals_are_drawn() -> None:
    drawn = plan_front(FOUND, GOAL, 896)
    assert ">deadline</text>" in drawn
    assert drawn.count("p-cloud") == 2 * 2  # of both on the front, for a desk and for a phone


def test_no_limit_is_drawn_where_there_is_none() -> None:
    assert "limit" not in plan_front(FOUND, Goal(num_tokens=1e12), 896)


def test_one_cluster_alone_is_no_picture() -> None:
    assert plan_front(FOUND[:1], GOAL, 896) == ""
