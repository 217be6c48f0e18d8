"""Announcements as a JSON Feed (1.1) and as Atom (RFC 4287), for whatever reads feeds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from autotuner.core.announcement import Announcement
from autotuner.core.codec import to_plain
from autotuner.service.announcing.payloads import iso_time, link

JSON_FEED = "application/feed+json"
ATOM = "application/atom+xml"

_TITLE = "Parallelism autotuner"
_TEXT = "Outcomes of retunes, MFU gates and sweeps"


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """A page of announcements, newest first.

    Attributes:
        home: Where a browser finds the service.
        url: Where this page is.
        next_url: Where the older ones are; None on the last page.
        now: Epoch seconds, for a feed in which nothing was announced yet.
    """

    announcements: Sequence[Announcement]
    home: str
    url: str
    next_url: str | None
    now: float

    def as_json(self) -> str:
        """A document after jsonfeed.org/version/1.1."""
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
        """A document after RFC 4287."""
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

    def _item(self, told: Announcement) -> dict[str, object]:
        return {
            "id": told.id,
            "url": link(told, self.home),
            "title": told.title,
            "content_text": told.text,
            "date_published": iso_time(told.at),
            "tags": [told.kind.value],
            "_autotuner": {"subject_id": told.subject_id, "facts": to_plain(told.facts)},
        }

    def _entry(self, told: Announcement) -> ET.Element:
        entry = ET.Element("entry")
        said = {"id": f"urn:autotuner:announcement:{told.id}", "title": told.title, "updated": iso_time(told.at)}
        for name, text in said.items():
            ET.SubElement(entry, name).text = _printable(text)
        ET.SubElement(entry, "link", rel="alternate", href=str(link(told, self.home)))
        ET.SubElement(entry, "category", term=told.kind.value)
        ET.SubElement(entry, "content", type="text").text = _printable(told.text)
        return entry


def _printable(text: str) -> str:
    """Without what XML cannot hold."""
    return "".join(
        letter if letter.isprintable() or letter in "\n\t" else "\N{REPLACEMENT CHARACTER}" for letter in text
    )
