"""Scope: what a caller may do."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Scope"]


class Scope(StrEnum):
    """What a caller may do; each holds what stands before it."""

    READ = "read"  # look, predict, explain, export
    RUN = "run"  # and start, change and end what takes accelerators, and store descriptions
    ADMIN = "admin"  # and what is other people's: tokens, webhooks, the audit log

    def covers(self, needed: Scope) -> bool:
        """Whether a caller with this scope may do what needs the other."""
        ranks = list(Scope)
        return ranks.index(self) >= ranks.index(needed)
