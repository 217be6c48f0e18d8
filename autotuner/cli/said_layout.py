"""The layout of a change, however its author wrote it down."""

from __future__ import annotations

from dataclasses import dataclass
from os.path import isfile
from typing import Any

from autotuner.cli.inputs import for_service, read_text
from autotuner.cli.layout_text import read_layout
from autotuner.core import documents
from autotuner.core.cluster import Cluster
from autotuner.core.codec import to_plain
from autotuner.core.layout import Layout
from autotuner.remote import Remote


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


def ranks_of(remote: Remote, cluster: str) -> int:
    """How many accelerators a cluster has, by a name that the service knows or a file."""
    described: Any = for_service(cluster, kind="cluster")
    found = remote.read_cluster(described) if isinstance(described, str) else documents.restore(Cluster, described)
    return found.world_size
