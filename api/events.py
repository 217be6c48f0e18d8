"""The events of sweeps: live streams that share one query of the store, and feeds."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from fastapi.sse import ServerSentEvent

from autotuner.core.announcement import Announcement
from autotuner.core.codec import to_plain
from autotuner.core.sweep import Event
from autotuner.service.webhooks import iso_time, link

if TYPE_CHECKING:
    from autotuner.store.runs import Identity
    from autotuner.store.sql import Store

# Live events of sweeps: one query of the store per sweep, however many readers it has.

_POLL_S = 0.3
"""Seconds between two queries: long enough to cost a database nothing, short enough to look live."""

_LAST = "sweep.finished"
"""Kind of the last event of a sweep, unless the sweep is opened again."""

_KEPT = 2000
"""Number of events of a sweep kept in memory for its readers; readers that are further behind read from the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedEvent:
    """An event of a run, encoded once for a stream of server-sent events. All readers of the run share this object."""

    sequence: int
    message: ServerSentEvent

    @classmethod
    def of(cls, event: Event) -> EncodedEvent:
        """Return the stored event of a run, encoded as a server-sent event."""
        data = json.dumps({"at": event.at, **event.data}, separators=(",", ":"))
        message = ServerSentEvent(id=str(event.sequence), event=event.kind, raw_data=data)
        return cls(sequence=event.sequence, message=message)


@dataclass(slots=True, kw_only=True, eq=False)
class _Tail:
    """The newest events of one sweep, which are read from the store while it has readers."""

    behind: int = 0
    """Sequence number after which every event is kept in memory."""
    kept: deque[EncodedEvent] = field(default_factory=lambda: deque(maxlen=_KEPT))
    num_readers: int = 0
    is_read: bool = False
    """True if the store was asked for events at least once."""
    is_over: bool = False
    """True if the sweep is finished and its last event is kept, or if it can no longer be followed."""
    error: Exception | None = None
    """Error that stopped the reader from following the sweep."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Event that wakes the readers; each change has an event of its own."""

    @property
    def newest(self) -> int:
        """Return the sequence number of the newest known event."""
        return self.kept[-1].sequence if self.kept else self.behind

    @property
    def may_be_over(self) -> bool:
        """Return True if the newest event says that the sweep is finished; it may have been opened again since.

        It is also True for other kinds of runs, which have no events.
        """
        return self.is_read and (not self.kept or self.kept[-1].message.event == _LAST)

    def add(self, events: Sequence[Event]) -> None:
        """Keep more events, and drop the oldest ones beyond the limit."""
        for event in events:
            if len(self.kept) == _KEPT:
                self.behind = self.kept[0].sequence
            self.kept.append(EncodedEvent.of(event))

    def wake(self) -> None:
        """Wake every reader, so that it looks for new events."""
        self.changed.set()
        self.changed = asyncio.Event()


class LiveEvents:
    """Events of sweeps for all readers on one event loop. All readers of a sweep share its queries of the store.

    Args:
        open_store: Returns the application's store.
    """

    def __init__(self, open_store: Callable[[], Store]) -> None:
        self._open_store = open_store
        self._tails: dict[str, _Tail] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._asked: dict[str, asyncio.Task[Identity]] = {}

    async def require(self, run_id: str) -> None:
        """Raise an error if a run does not exist. Readers who ask at the same time share one query of the store.

        Raises:
            NotFound: No run that callers may read has that id.
        """
        if run_id in self._tails:
            return
        if run_id not in self._asked:
            asked = asyncio.create_task(asyncio.to_thread(lambda: self._open_store().runs.identify(run_id)))
            asked.add_done_callback(lambda _: self._asked.pop(run_id))
            self._asked[run_id] = asked
        await asyncio.shield(self._asked[run_id])  # a reader that leaves must not cancel the query of the others

    async def read(self, run_id: str, *, after: int, wait: bool) -> AsyncIterator[EncodedEvent]:
        """Yield the events of a sweep whose sequence number is larger than ``after``.

        Args:
            run_id: Id of the sweep.
            after: Sequence number of the last event that the reader has seen.
            wait: True to wait for further events until the sweep is finished; if False, only stored events are
                yielded.
        """
        if not wait:
            async for event in self._stored(run_id, after):
                yield event
            return
        with self._followed(run_id) as tail:
            while True:
                if after < tail.behind:
                    async for event in self._stored(run_id, after):
                        yield event
                        after = event.sequence
                changed, is_over = tail.changed, tail.is_over
                for event in [event for event in tail.kept if event.sequence > after]:
                    yield event
                    after = event.sequence
                if tail.error is not None:
                    raise tail.error
                if is_over:
                    return
                if after >= tail.newest:
                    await changed.wait()

    async def _stored(self, run_id: str, after: int) -> AsyncIterator[EncodedEvent]:
        while events := await self._ask(run_id, after):
            for event in events:
                yield EncodedEvent.of(event)
                after = event.sequence

    async def _ask(self, run_id: str, after: int) -> Sequence[Event]:
        return await asyncio.to_thread(lambda: self._open_store().events(run_id, after=after))

    @contextmanager
    def _followed(self, run_id: str) -> Iterator[_Tail]:
        """Yield the shared tail of the sweep's events, which is followed until its last reader leaves."""
        tail = self._tails.get(run_id)
        if tail is None or tail.is_over:
            tail = self._tails[run_id] = _Tail()
            self._tasks.add(task := asyncio.create_task(self._follow(run_id, tail)))
            task.add_done_callback(self._tasks.discard)
        tail.num_readers += 1
        try:
            yield tail
        finally:
            tail.num_readers -= 1

    async def _follow(self, run_id: str, tail: _Tail) -> None:
        try:
            while tail.num_readers and not tail.is_over:
                if not await self._look(run_id, tail):
                    await asyncio.sleep(_POLL_S)
        except Exception as error:  # each reader reports it to its own caller
            tail.error = error
        finally:
            tail.is_over = True
            if self._tails.get(run_id) is tail:
                del self._tails[run_id]
            tail.wake()

    async def _look(self, run_id: str, tail: _Tail) -> bool:
        """Ask the store for new events; return False if there are none."""
        # Read the state before the events, so that the events of a finished sweep are complete.
        is_over = tail.may_be_over and (
            await asyncio.to_thread(lambda: self._open_store().runs.identify(run_id).state.is_finished)
        )
        events = await self._ask(run_id, tail.newest)
        tail.add(events)
        tail.is_read = True
        tail.is_over = is_over and not events
        if events or tail.is_over:
            tail.wake()
        return bool(events)


# Announcements as a JSON Feed (1.1) and as Atom (RFC 4287), for whatever reads feeds.

JSON_FEED = "application/feed+json"
ATOM = "application/atom+xml"

_TITLE = "Parallelism autotuner"
_TEXT = "Outcomes of retunes, performance regression gates and sweeps"


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """One page of the feed of announcements: messages about the outcomes of sweeps, gates and retunes, newest first."""

    announcements: Sequence[Announcement]
    home: str
    """Address of the service's first page."""
    url: str
    """Address of this page of the feed."""
    next_url: str | None
    """Address of the page with older announcements; None on the last page."""
    now: float
    """Present time in epoch seconds, for a feed without announcements."""

    def as_json(self) -> str:
        """Return the feed as a JSON Feed, version 1.1 (jsonfeed.org/version/1.1)."""
        document = {
            "version": "https://jsonfeed.org/version/1.1",
            "title": _TITLE,
            "description": _TEXT,
            "home_page_url": self.home,
            "feed_url": self.url,
            "items": [self._item(each) for each in self.announcements],
        }
        return json.dumps(document | ({"next_url": self.next_url} if self.next_url else {}))

    def as_atom(self) -> str:
        """Return the feed as an Atom document (RFC 4287)."""
        feed = ET.Element("feed", xmlns="http://www.w3.org/2005/Atom")
        for name, text in (("id", self.url), ("title", _TITLE), ("subtitle", _TEXT)):
            ET.SubElement(feed, name).text = text
        newest = self.announcements[0].at if self.announcements else self.now
        ET.SubElement(feed, "updated").text = iso_time(newest)
        ET.SubElement(ET.SubElement(feed, "author"), "name").text = _TITLE
        links = {"self": self.url, "alternate": self.home} | ({"next": self.next_url} if self.next_url else {})
        for relation, where in links.items():
            ET.SubElement(feed, "link", rel=relation, href=where)
        for each in self.announcements:
            feed.append(self._entry(each))
        return ET.tostring(feed, encoding="unicode", xml_declaration=True)

    def _item(self, announcement: Announcement) -> dict[str, object]:
        return {
            "id": announcement.id,
            "url": link(announcement, self.home),
            "title": announcement.title,
            "content_text": announcement.text,
            "date_published": iso_time(announcement.at),
            "tags": [announcement.kind.value],
            "_autotuner": {"subject_id": announcement.subject_id, "facts": to_plain(announcement.facts)},
        }

    def _entry(self, announcement: Announcement) -> ET.Element:
        entry = ET.Element("entry")
        said = {
            "id": f"urn:autotuner:announcement:{announcement.id}",
            "title": announcement.title,
            "updated": iso_time(announcement.at),
        }
        for name, text in said.items():
            ET.SubElement(entry, name).text = _printable(text)
        ET.SubElement(entry, "link", rel="alternate", href=str(link(announcement, self.home)))
        ET.SubElement(entry, "category", term=announcement.kind.value)
        ET.SubElement(entry, "content", type="text").text = _printable(announcement.text)
        return entry


def _printable(text: str) -> str:
    """Return the text without characters that XML does not allow."""
    return "".join(
        letter if letter.isprintable() or letter in "\n\t" else "\N{REPLACEMENT CHARACTER}" for letter in text
    )
