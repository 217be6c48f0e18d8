"""Errors that a caller caused or must handle; a trial that dies is a record, not an exception."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from reprlib import Repr

_LINE = 100
"""Characters that a message quotes of a value."""


_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = _LINE
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxdict = 8


def quoted(value: object) -> str:
    """The value as Python writes it, cut off in the middle or at its end where it is longer than a line."""
    text = _SHORT.repr(value)
    return text if len(text) <= _LINE else f"{text[: _LINE - 3]}..."


def sendable(text: str) -> str:
    """The text with halves of surrogate pairs spelt out: JSON can say them, and nothing can send them."""
    return text.encode("utf-8", "backslashreplace").decode()


class AutotunerError(Exception):
    """Base of every error this project raises on purpose; it can be pickled, whatever its constructor takes."""

    def __reduce__(self) -> tuple[object, ...]:
        return _as_it_was, (type(self), self.args, self.__dict__)


def _as_it_was(cls: type[AutotunerError], args: tuple[object, ...], state: dict[str, object]) -> AutotunerError:
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(state)
    return error


class InvalidInput(AutotunerError, ValueError):
    """A value that a caller gave breaks a rule.

    Attributes:
        field: Path of the value, dots between names (``cluster.num_nodes``).
        value: What was given.
        rule: What it should have been, as a sentence without a full stop.
        nearest: The nearest legal value, where there is one.
    """

    def __init__(self, field: str, value: object, rule: str, nearest: object = None) -> None:
        self.field = sendable(field)
        self.value = value
        self.rule = sendable(rule)
        self.nearest = nearest
        hint = "" if nearest is None else f"; nearest legal value: {nearest}"
        super().__init__(sendable(f"{field} = {quoted(value)}: {rule}{hint}"))

    @property
    def complaints(self) -> tuple[InvalidInput, ...]:
        """Each value that breaks a rule, of which an ``InvalidDocument`` has several."""
        return (self,)

    def under(self, parent: str) -> InvalidInput:
        """The same complaint, seen from the object that holds the field."""
        return InvalidInput(f"{parent}.{self.field}", self.value, self.rule, self.nearest)


_MAX_SAID = 5
"""Complaints in the sentence for people."""


class InvalidDocument(InvalidInput):
    """One or more values of a document break rules; field, value, rule and nearest are those of the first."""

    _others: tuple[InvalidInput, ...] = ()
    _num_found: int = 1

    def __init__(self, complaints: Sequence[InvalidInput], num_found: int = 0) -> None:
        first, *others = complaints
        super().__init__(first.field, first.value, first.rule, first.nearest)
        self._others = tuple(others)
        self._num_found = max(num_found, len(complaints))
        self.args = (in_one_line(complaints, self._num_found),)

    @property
    def complaints(self) -> tuple[InvalidInput, ...]:
        """Each value that breaks a rule, at most the first 50."""
        return (InvalidInput(self.field, self.value, self.rule, self.nearest), *self._others)

    def under(self, parent: str) -> InvalidDocument:
        """The same complaints, seen from the object that holds the document."""
        return InvalidDocument([each.under(parent) for each in self.complaints], self._num_found)


def in_one_line(complaints: Sequence[object], num_found: int) -> str:
    """Return the first complaints as one sentence, with how many more there are."""
    said = [str(each) for each in complaints[:_MAX_SAID]]
    if (more := num_found - len(said)) > 0:
        said.append(f"and {more} more")
    return "; ".join(said)


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One value that breaks one rule."""

    field: str
    """Path of the value in the body, or name of the parameter."""
    value: object
    """What was given; what is longer than a line is cut off."""
    rule: str
    """What it should have been."""
    nearest: object = None
    """The nearest legal value; null where none is known."""

    def __str__(self) -> str:
        return str(InvalidInput(self.field, self.value, self.rule, self.nearest))


class Unreadable(InvalidInput):
    """Raised when a stored document cannot be read: no caller can mend it, so a service answers it as its own error."""

    def __init__(self, kind: str, text: str, problem: Exception) -> None:
        super().__init__(f"stored {kind}", text, f"cannot be read: {problem}")


class NotFound(AutotunerError):
    """Nothing is stored under that name or id."""

    def __init__(self, kind: str, key: str, nearest: str | None = None) -> None:
        self.kind = kind
        self.key = key
        self.nearest = nearest
        hint = "" if nearest is None else f"; did you mean {nearest!r}?"
        super().__init__(f"no {kind} {quoted(key)}{hint}")


class Conflict(AutotunerError):
    """The request contradicts what is already stored; the message says what and how to go on."""


class NotLetIn(AutotunerError):
    """Who asks showed nothing, or nothing that counts, of who they are."""


class NotAllowed(AutotunerError):
    """Who asks is known, and may not do that."""

    def __init__(self, needed: str, scope: str | None) -> None:
        self.needed = needed
        self.scope = scope
        super().__init__(f"this needs the scope {needed}; yours is {scope or 'none'}")


class NotYours(AutotunerError):
    """Somebody else made what the caller wants to change."""

    def __init__(self, kind: str, key: str, created_by: str) -> None:
        self.created_by = created_by
        whose = f"{quoted(created_by)} made it" if created_by else "it was made while nobody was asked who they are"
        super().__init__(f"the {kind} {quoted(key)} is not yours to change: {whose}; ask them or an admin")


class QuotaExceeded(AutotunerError):
    """The caller takes as much as they may; the message says how much that is.

    Attributes:
        retry_after_s: When enough of it will be free at the latest, from now; None: when something of theirs ends.
    """

    def __init__(self, detail: str, retry_after_s: float | None = None) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(detail)


class TooOften(AutotunerError):
    """Who asks did so too often; ``retry_after_s`` says when they may again."""

    def __init__(self, detail: str, retry_after_s: int) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(detail)


class TooCostly(AutotunerError):
    """An answer takes more time or memory than the service gives one; the message says how much that is."""


class Busy(AutotunerError):
    """Too many wait for the service already.

    Attributes:
        retry_after_s: When to ask again, from now.
    """

    def __init__(self, detail: str, retry_after_s: float) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(detail)


class LeaseLost(AutotunerError):
    """Another worker holds the run now; whoever sees this must stop writing to it."""

    def __init__(self, run_id: str, owner: str) -> None:
        self.run_id = run_id
        self.owner = owner
        super().__init__(f"worker {owner!r} no longer holds the lease on {run_id!r}")


class StoreUnavailable(AutotunerError):
    """The database cannot be reached or cannot be written (a full disk, a lost connection)."""
