"""What a user writes after --layout: the words that tables print, or JSON."""

from __future__ import annotations

import json
from typing import Any

from autotuner.cli.inputs import read_text
from autotuner.core import documents
from autotuner.core.errors import InvalidInput
from autotuner.core.layout import Layout, parse_words


def read_layout(text: str) -> dict[str, Any]:
    """The fields of a layout that the text names, as the service takes them; others take their defaults.

    The words are those of ``core.layout``: ``fsdp8 tp4 pp2 1f1b mb1 sp recompute-full every2 flash bf16``.

    Raises:
        InvalidInput: A word or a field is unknown; with the nearest that is known. Or one is given twice.
    """
    is_file = text.endswith(".json")
    if is_file or text.lstrip().startswith("{"):
        return _document(read_text(text, "layout") if is_file else text)
    return parse_words(text)


def _document(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput("layout", text[:60], f"must be words or JSON ({error})") from error
    documents.read(Layout, document, "layout")
    return document  # type: ignore[no-any-return]  # from_plain refuses what is no object
