"""The page of the kinds of events, announcements and runs."""

from __future__ import annotations

from autotuner.core.announcement import ANNOUNCEMENT_MEANINGS
from autotuner.core.sweep import EVENT_KINDS
from documentation.reference.markdown import head, table

_STREAM = """\
`GET /api/v1/runs/{run_id}/events` streams them as server-sent events: first those that happened, then those that
happen. Each one has an `id`. A reader that sends it back as `Last-Event-ID` continues behind it. A comment every 15 s
keeps idle connections open.
"""


def events_page() -> str:
    """Return the Markdown page of the kinds of events and announcements."""
    rows = [(f"`{kind.value}`", meaning) for kind, meaning in ANNOUNCEMENT_MEANINGS.items()]
    return "\n".join(
        [
            head("Events", "The kinds of events that the service streams, and of outcomes that it announces."),
            "## Events of a sweep\n",
            _STREAM,
            table(("kind", "meaning"), [(f"`{kind}`", meaning) for kind, meaning in EVENT_KINDS.items()]),
            "## Announcements\n",
            "Webhooks post them, and the feeds `GET /api/v1/feed.json` and `GET /api/v1/feed.atom` list them.\n",
            table(("kind", "meaning"), rows),
        ]
    )
