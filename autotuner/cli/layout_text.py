"""Layouts as people write them, and where a command takes one from."""

from __future__ import annotations

import json
from dataclasses import dataclass
from os.path import isfile
from typing import Any

from autotuner.cli.client import Client
from autotuner.cli.inputs import for_service, read_text
from autotuner.core import documents
from autotuner.core.codec import to_plain
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SaidLayout:
    """A layout, and what was assumed or changed while it was read, a sentence for each."""

    layout: Layout
    notes: tuple[str, ...] = ()

    @property
    def fields(self) -> dict[str, Any]:
        """As the service takes it."""
        fields: dict[str, Any] = to_plain(self.layout)
        return fields


def said_layout(text: str, num_ranks: int | None) -> SaidLayout:
    """The layout of words, of JSON, of a JSON file of ours, or of a trainer's own configuration file.

    Args:
        text: What was given.
        num_ranks: Of the job: most configurations do not say it.

    Raises:
        InvalidInput: It is none of these, or cannot be read.
    """
    if is_configuration(text):
        return _configured(text, num_ranks)
    return SaidLayout(layout=documents.read(Layout, read_layout(text), "layout"))


def is_configuration(text: str) -> bool:
    """Whether it names a file that is not our own JSON, and so a trainer's configuration."""
    return isfile(text) and not text.endswith(".json")


def _configured(path: str, num_ranks: int | None) -> SaidLayout:
    from autotuner.export.registry import read
    from autotuner.export.target import NoteKind

    found = read(read_text(path, "layout", errors="replace"), num_ranks=num_ranks)
    telling = [note for note in found.notes if note.kind is not NoteKind.IGNORED]
    return SaidLayout(
        layout=found.layout, notes=tuple(f"{note.kind} of {path}, {note.setting}: {note.detail}" for note in telling)
    )


def ranks_of(client: Client, cluster: str) -> int:
    """How many accelerators a cluster has, by a name that the service knows or a file."""
    described: Any = for_service(cluster, kind="cluster")
    found = client.get(f"/clusters/{described}") if isinstance(described, str) else described
    return int(found["num_nodes"] * found["accelerators_per_node"])
