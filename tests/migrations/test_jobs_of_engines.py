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


def mark_simulated(connection: Connection) -> None:
    """Every measurement says that nothing ran."""
    for trial_id, document in connection.execute(text("SELECT trial_id, document FROM measurements")).all():
        named = {"id": trial_id, "document": json.dumps(json.loads(document) | {"is_simulated": True})}
        connection.execute(text("UPDATE measurements SET document = :document WHERE trial_id = :id"), named)


def test_an_older_release_reads_clusters_and_failures_when_it_is_undone(empty_url: str) -> None:
    engine = make_engine(empty_url)
    with writing(engine) as connection:
        load(connection, "0006")
        add_lost_trial(connection)
        mark_simulated(connection)
        command.downgrade(alembic_config(connection), "0005")
        request = connection.scalar(text("SELECT request FROM sweeps WHERE id = 'sw-running000'"))
        kind, document = connection.execute(
            text("SELECT kind, document FROM failures WHERE trial_id = 'sw-running000-0000'")
        ).one()
        documents = connection.scalars(text("SELECT document FROM measurements")).all()
    engine.dispose()
    assert documents
    assert not any("is_simulated" in json.loads(document) for document in documents)
    assert not {"engine", "queue"} & json.loads(request or "")["job"]["cluster"].keys()
    assert (kind, json.loads(document)["kind"]) == ("interrupted", "interrupted")
