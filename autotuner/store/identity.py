"""Ids of sweeps and trials, names of models and clusters, and what to say when they miss or clash."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from difflib import get_close_matches

from autotuner.core.errors import Conflict, InvalidInput, NotFound

_BASE32 = "abcdefghijklmnopqrstuvwxyz234567"  # RFC 4648, lower case: safe in paths, file names and job names


def new_sweep_id() -> str:
    """``sw-`` and ten random base-32 characters: 50 bits, so a million sweeps clash with odds of 1 in 2000."""
    return "sw-" + _ten_characters()


def new_check_id() -> str:
    """``ck-`` and as many."""
    return "ck-" + _ten_characters()


def new_run_id() -> str:
    """``rt-`` and as many: a run of a retune."""
    return "rt-" + _ten_characters()


def new_mfu_gate_id() -> str:
    """``mg-`` and as many."""
    return "mg-" + _ten_characters()


def new_optimizer_study_id() -> str:
    """``os-`` and as many."""
    return "os-" + _ten_characters()


def new_delivery_id() -> str:
    """``dl-`` and as many."""
    return "dl-" + _ten_characters()


def new_audit_id() -> str:
    """``au-`` and as many."""
    return "au-" + _ten_characters()


def _ten_characters() -> str:
    return "".join(secrets.choice(_BASE32) for _ in range(10))


def trial_id(sweep_id: str, number: int) -> str:
    """The sweep's id and the trial's number; up to 9999 the ids of one sweep sort by number."""
    return f"{sweep_id}-{number:04d}"


def check_name(field: str, name: str) -> None:
    """``name`` can be stored by every database and typed by a person.

    Raises:
        InvalidInput: It is empty or holds a character that does not print; PostgreSQL has no NUL in a text.
    """
    if not name or not name.isprintable():
        raise InvalidInput(field, name, "must be printable text of at least one character")


def no_such_name(kind: str, name: str, known: Iterable[str]) -> NotFound:
    """The error for a name that is not stored, with the closest of those that are."""
    near = get_close_matches(name, list(known), 1)
    return NotFound(kind, name, near[0] if near else None)


def name_taken(kind: str, name: str) -> Conflict:
    """The error for saving something else under a stored name."""
    return Conflict(f"a different {kind} is stored as {name!r}; save this one under a name of its own")
