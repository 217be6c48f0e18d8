"""Comment: a text that a person writes about a sweep or one of its trials, with tags by which sweeps are found."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge, MaxLen

from autotuner.core.documents import Key, Note
from autotuner.core.errors import InvalidInput
from autotuner.core.value import Caption, Flag, Hint, value


@value
class CommentCreate:
    """A request to add a comment: a text, tags, or both.

    Raises:
        InvalidInput: There is neither a text nor a tag, or a tag occurs twice.
    """

    text: Annotated[Note, Caption("Comment"), Hint("tried with NCCL 2.28")] = ""
    """Text of the comment; it may have several lines."""
    tags: Annotated[tuple[Key, ...], MaxLen(8), Flag("tag"), Caption("Tags"), Hint("baseline, paper")] = ()
    """Tags by which sweeps are found. Upper and lower case are the same."""
    trial_number: Annotated[int | None, Ge(0), Flag("trial")] = None
    """Number of the trial that the comment is about; empty: the comment is about the whole sweep."""

    def __post_init__(self) -> None:
        if not self.text.strip() and not self.tags:
            raise InvalidInput("text", self.text, "must not be empty if the comment has no tag")
        for place, tag in enumerate(self.tags):
            if tag.lower() in {one.lower() for one in self.tags[:place]}:
                raise InvalidInput(
                    f"tags.{place}", tag, "must not repeat another tag; upper and lower case count as the same"
                )


@value
class Comment(CommentCreate):
    """A comment on a sweep or on a trial, as it is stored."""

    id: str
    sweep_id: str
    """Id of the sweep that the comment is about, or that contains the commented trial."""
    created_by: str
    """Name of the caller who wrote the comment; empty if the service has no login."""
    created_at: float
    """Time when the comment was written, in epoch seconds."""
