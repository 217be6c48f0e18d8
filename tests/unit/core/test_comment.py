"""What a comment may hold, as every surface reads it."""

from __future__ import annotations

import pytest

from autotuner.core import documents
from autotuner.core.comment import CommentCreate
from autotuner.core.errors import InvalidInput


@pytest.mark.parametrize(
    ("document", "field", "rule", "nearest"),
    [
        ({}, "text", "must not be empty if the comment has no tag", None),
        ({"text": " \n"}, "text", "must not be empty if the comment has no tag", None),
        ({"text": "x" * 2001}, "text", "must have 2000 characters or fewer", "x" * 2000),
        (
            {"text": "a\x1b[31m\r\nb\u202e"},
            "text",
            "must not have control characters other than line breaks",
            "a[31m\nb",
        ),
        ({"tags": ["a b"]}, "tags.0", "must have 1 to 128 characters, only letters, digits", "a-b"),
        ({"tags": ["a", "A"]}, "tags.1", "must not repeat another tag; upper and lower case count as the same", None),
        ({"tags": [*"abcdefghi"]}, "tags", "must have 8 items or fewer", None),
        ({"text": "x", "trial_number": -1}, "trial_number", "must be 0 or more", 0),
    ],
)
def test_a_comment_that_breaks_a_rule_is_refused_with_the_nearest_that_does_not(
    document: dict[str, object], field: str, rule: str, nearest: object
) -> None:
    with pytest.raises(InvalidInput) as refused:
        documents.read(CommentCreate, document)
    assert (refused.value.field, refused.value.nearest) == (field, nearest)
    assert refused.value.rule.startswith(rule)
    assert len(str(refused.value)) < 400


def test_a_comment_is_a_text_of_lines_or_tags_alone() -> None:
    assert documents.read(CommentCreate, {"tags": ["baseline", "v1.2"]}).text == ""
    assert documents.read(CommentCreate, {"text": "<b>\n\tünlike"}).text == "<b>\n\tünlike"
