"""Tokens that were recognised a while ago, so that each request needs no digest of its own."""

from __future__ import annotations

import threading
from collections import OrderedDict

from autotuner.service.access.secret import fingerprint

_MOST = 1024
"""Tokens that are remembered; the one that was seen longest ago is forgotten first."""


class Verified:
    """Which text of a token has which digest, by the fingerprint of the text; whether it counts is asked each time."""

    def __init__(self) -> None:
        self._digests: OrderedDict[str, str] = OrderedDict()
        self._changing = threading.Lock()

    def has(self, text: str, digest: str) -> bool:
        """Whether the digest was found to be that of the token."""
        key = fingerprint(text)
        with self._changing:
            known = self._digests.get(key)
            if known is not None:
                self._digests.move_to_end(key)
        return known == digest

    def add(self, text: str, digest: str) -> None:
        """Remember that it is."""
        with self._changing:
            self._digests[fingerprint(text)] = digest
            if len(self._digests) > _MOST:
                self._digests.popitem(last=False)
