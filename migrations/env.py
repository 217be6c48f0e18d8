"""Alembic runs this file for every command, with the connection that autotuner.store.schema put into its config."""

from __future__ import annotations

from alembic import context

context.configure(
    **context.config.attributes,
    render_as_batch=True,  # SQLite alters a table by writing a new one
)
with context.begin_transaction():
    context.run_migrations()
