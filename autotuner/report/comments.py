"""The report of comments: a section of a sweep or of a trial, or a report of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from autotuner.core.comment import Comment
from autotuner.core.trial import trial_id
from autotuner.report.report import Button, Cell, Cells, Column, Link, Moment, Quiet, Report, Section, Table
from autotuner.report.words import num_in_all


def comments_section(
    comments: Sequence[Comment],
    total: int,
    *,
    is_of_trial: bool = False,
    may_remove: Callable[[Comment], bool] = lambda one: False,
) -> Section:
    """Return a section with the comments on a sweep and its trials, or on one trial.

    Args:
        comments: The newest comments, the newest first.
        total: Number of all comments.
        is_of_trial: True if the comments are about one trial; buttons then lead back to the page of the trial.
        may_remove: Returns True if the reader of the page may remove the comment.
    """
    rows = [
        (
            _said(one),
            *(() if is_of_trial else (_about(one),)),
            _written(one),
            one.id,
            _button(one, is_of_trial=is_of_trial) if may_remove(one) else "",
        )
        for one in comments
    ]
    columns = (
        Column("comment", is_number=False, may_wrap=True),
        *(() if is_of_trial else (Column("on", is_number=False),)),
        Column("written", is_number=False),
        Column("id", is_number=False, is_long=True),
        Column("", is_number=False, is_action=True),
    )
    caption = f"The newest {len(comments)} of {num_in_all(total, 'comment')}" if total > len(comments) else ""
    table = Table(columns=columns, rows=rows, caption=caption, if_empty="None yet.")
    return Section(title="Comments", blocks=(table,))


def _said(one: Comment) -> Cells:
    """Return the lines of a comment followed by its tags; each tag links to the sweeps that have it."""
    tags = (Link(f"#{tag}", "", query={"tag": tag}) for tag in one.tags)
    return (*filter(str.strip, one.text.splitlines()), *tags)


def _about(one: Comment) -> Cell:
    if one.trial_number is None:
        return "the sweep"
    return Link(f"trial {one.trial_number}", "trials", trial_id(one.sweep_id, one.trial_number))


def _written(one: Comment) -> Cells:
    return (Moment(one.created_at), Quiet(f"by {one.created_by}")) if one.created_by else Moment(one.created_at)


def _button(one: Comment, *, is_of_trial: bool) -> Button:
    of = f"trials/{trial_id(one.sweep_id, one.trial_number or 0)}" if is_of_trial else f"sweeps/{one.sweep_id}"
    return Button(words="Delete", path=f"{of}/comments/{one.id}/delete", says=f"Delete the comment {one.id}")


def comments_report(comments: Sequence[Comment], sweep_id: str) -> Report:
    """Return the report that lists all comments on a sweep and its trials, with their authors and times."""
    section = replace(comments_section(comments, len(comments)), title="")
    return Report(headline=f"Comments on {sweep_id}", sections=(section,))


def comment_written_report(one: Comment) -> Report:
    """Return a report that confirms that a comment is stored."""
    about = one.sweep_id if one.trial_number is None else f"trial {one.trial_number} of {one.sweep_id}"
    return Report(headline=f"{one.id} is written on {about}", sections=())


def comment_removed_report(one: Comment) -> Report:
    """Return a report that confirms that a comment is removed."""
    return Report(headline=f"{one.id} is removed from {one.sweep_id}", sections=())
