"""Comment: what somebody writes on a sweep or on a trial of it, with tags by which sweeps are found."""

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
    """Words by which sweeps are found, in any case of letters."""
    trial_number: Annotated[int | None, Ge(0), Flag("trial")] = None
    """Number of the trial that it is about; empty: it is about the whole sweep."""

    def __post_init__(self) -> None:
        if not self.text.strip() and not self.tags:
            raise InvalidInput("text", self.text, "must not be empty, unless there is a tag")
        for place, tag in enumerate(self.tags):
            if tag.lower() in {one.lower() for one in self.tags[:place]}:
                raise InvalidInput(f"tags.{place}", tag, "must occur once, whatever the case of its letters")


@value
class Comment(CommentCreate):
    """A comment on a sweep or on a trial, as it is stored."""

    id: str
    sweep_id: str
    """The sweep that it is about, or whose trial."""
    created_by: str
    """Name of the caller who wrote it; empty where nobody was asked."""
    created_at: float
    """Epoch seconds."""
