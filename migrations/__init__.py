"""Alembic revisions of the store; versions never import autotuner."""
