"""Comments on sweeps and their trials on SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, delete, insert, select

from autotuner.core.access import NOBODY_ASKED, Caller
from autotuner.core.comment import Comment, CommentCreate
from autotuner.core.documents import extended
from autotuner.core.trial import trial_id
from autotuner.store.descriptions import new_id
from autotuner.store.engine import one_row, reading, select_values, values_of, window, writing
from autotuner.store.options import Page
from autotuner.store.runs import Part
from autotuner.store.tables import comments, trials
from autotuner.store.trials import check_sweep


class CommentStore(Part):
    """The store of people's comments on sweeps and on their trials."""

    def add(self, sweep_id: str, asked: CommentCreate, *, now: float, caller: Caller = NOBODY_ASKED) -> Comment:
        """Store the caller's comment on a sweep or on one of its trials.

        Raise ``NotFound`` if the sweep or the trial is not stored.
        """
        said = {"id": new_id("cm"), "sweep_id": sweep_id, "created_by": caller.name, "created_at": now}
        comment = extended(Comment, asked, **said)
        with writing(self._engine) as connection:
            check_sweep(connection, sweep_id)
            if comment.trial_number is not None:
                trial = trial_id(sweep_id, comment.trial_number)
                one_row(connection, select(trials.c.id).where(trials.c.id == trial), "trial", trial)
            connection.execute(insert(comments).values(values_of(comment)))
        return comment

    def list(
        self, sweep_id: str, *, trial_number: int | None = None, page: Page = Page()
    ) -> tuple[Sequence[Comment], int]:
        """Return one page of comments on a sweep, newest first, and the total number of comments that match.

        If ``trial_number`` is None, the result has the comments on the sweep itself and on all its trials; otherwise,
        only the comments on that trial.
        """
        mine = select_values(comments, Comment).where(comments.c.sweep_id == sweep_id)
        if trial_number is not None:
            mine = mine.where(comments.c.trial_number == trial_number)
        with reading(self._engine) as connection:
            check_sweep(connection, sweep_id)
            rows, total = window(connection, mine.order_by(comments.c.created_at.desc(), comments.c.id.desc()), page)
        return [Comment(**row._mapping) for row in rows], total

    def remove(self, comment_id: str, *, caller: Caller = NOBODY_ASKED) -> Comment:
        """Delete a comment and return it; raise ``NotOwner`` if the caller is neither its author nor an admin."""
        with writing(self._engine) as connection:
            comment = _get(connection, comment_id)
            caller.require_own("comment", comment_id, comment.created_by)
            connection.execute(delete(comments).where(comments.c.id == comment_id))
        return comment


def _get(connection: Connection, comment_id: str) -> Comment:
    found = one_row(
        connection, select_values(comments, Comment).where(comments.c.id == comment_id), "comment", comment_id
    )
    return Comment(**found._mapping)
