"""Revision 0009 can be undone: an older release reads all sweeps but those whose trials it would rank wrongly."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from alembic import command
from sqlalchemy import Connection, text

from autotuner.store.engine import make_engine, writing
from autotuner.store.schema import alembic_config
from tests.migrations.saved import load

CALIBRATION = {"factor": 1.2, "num_trials": 3, "num_sweeps": 1, "parts": [], "correlations": [], "interval_scale": 1.0}


def calibrate(connection: Connection, sweep_id: str) -> None:
    """Have the sweep know what later releases know of their clusters."""
    named = {"id": sweep_id}
    request = json.loads(connection.scalar(text("SELECT request FROM sweeps WHERE id = :id"), named) or "")
    request["job"]["calibration"] = CALIBRATION
    named["request"] = json.dumps(request)
    connection.execute(text("UPDATE sweeps SET request = :request, stop_reason = 'compared' WHERE id = :id"), named)


@pytest.fixture
def undone(empty_url: str) -> Iterator[Connection]:
    """The saved database at revision 0008 again."""
    engine = make_engine(empty_url)
    with writing(engine) as connection:
        load(connection, "0009")
        calibrate(connection, "sw-finished00")
        command.downgrade(alembic_config(connection), "0008")
        yield connection
    engine.dispose()


def asked(connection: Connection, sweep_id: str) -> set[str]:
    """Fields of the request that is stored of a sweep."""
    document = connection.scalar(text("SELECT request FROM sweeps WHERE id = :id"), {"id": sweep_id})
    return set(json.loads(document or ""))


def test_an_older_release_reads_a_sweep_without_a_challenge(undone: Connection) -> None:
    plain = json.loads(undone.scalar(text("SELECT request FROM sweeps WHERE id = 'sw-finished00'")) or "")
    assert not {"challenge", "uses_history"} & plain.keys()


def test_an_older_release_says_that_it_cannot_read_a_challenged_sweep(undone: Connection) -> None:
    assert {"challenge", "uses_history"} <= asked(undone, "sw-challenge0")


def test_an_older_release_reads_a_calibration_and_why_a_sweep_ended(undone: Connection) -> None:
    request, reason = undone.execute(text("SELECT request, stop_reason FROM sweeps WHERE id = 'sw-finished00'")).one()
    assert json.loads(request)["job"]["calibration"] == {"factor": 1.2}
    assert reason == "nothing_to_gain"
