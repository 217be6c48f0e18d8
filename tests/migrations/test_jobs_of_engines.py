"""Revision 0006 can be undone: what an older release does not know of engines is gone."""

from __future__ import annotations

import json

from alembic import command
from sqlalchemy import Connection, text

from autotuner.store.engine import make_engine, writing
from autotuner.store.schema import alembic_config
from tests.migrations.saved import load

LOST = '{"schema_version":1,"kind":"infrastructure","message":"node2 does not answer","rank":null,"log_tail":""}'


def add_lost_trial(connection: Connection) -> None:
    """A trial that failed because its nodes were lost."""
    named = {"id": "sw-running000-0000", "document": LOST}
    connection.execute(text("INSERT INTO failures VALUES (:id, 'infrastructure', :document)"), named)


def test_an_older_release_reads_clusters_and_failures_when_it_is_undone(empty_url: str) -> None:
    engine = make_engine(empty_url)
    with writing(engine) as connection:
        load(connection, "0006")
        add_lost_trial(connection)
        command.downgrade(alembic_config(connection), "0005")
        request = connection.scalar(text("SELECT request FROM sweeps WHERE id = 'sw-running000'"))
        kind, document = connection.execute(
            text("SELECT kind, document FROM failures WHERE trial_id = 'sw-running000-0000'")
        ).one()
    engine.dispose()
    assert not {"engine", "queue"} & json.loads(request or "")["job"]["cluster"].keys()
    assert (kind, json.loads(document)["kind"]) == ("interrupted", "interrupted")
