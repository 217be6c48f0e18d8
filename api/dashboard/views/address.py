"""Addresses of a page that keeps what somebody chose in its query: sort, filter, columns, page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlencode

from fastapi import Request

_OF_PARTS = ("part",)
"""What asks for a part of a page, and is in no link."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The query of a page, and links to the same page with another."""

    chosen: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, request: Request) -> Self:
        """What the caller chose."""
        given = request.query_params.multi_items()
        return cls(chosen=tuple((name, value) for name, value in given if name not in _OF_PARTS and value))

    def get(self, name: str) -> str:
        """What was chosen under that name, several with commas between them; empty where nothing was."""
        return ",".join(value for key, value in self.chosen if key == name)

    def but(self, *names: str) -> tuple[tuple[str, str], ...]:
        """Everything else that was chosen: hidden fields of a form for those names."""
        return tuple((name, value) for name, value in self.chosen if name not in names)

    def with_(self, **changes: str | int | None) -> str:
        """The query with these values in place of what was chosen; empty ones are left out."""
        kept = self.but(*changes)
        changed = ((name, str(value)) for name, value in changes.items() if value not in (None, ""))
        return _query((*kept, *changed))

    @property
    def query(self) -> str:
        """The query as it stands."""
        return _query(self.chosen)


def _query(items: Iterable[tuple[str, str]]) -> str:
    written = urlencode(list(items), safe=",:")
    return f"?{written}" if written else "?"
