"""Errors that a caller caused or must handle. A trial that dies is a record, not an exception."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from reprlib import Repr

_LINE = 100
"""Most characters of a value that a message quotes."""


_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = _LINE
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxdict = 8


def quoted(value: object) -> str:
    """Return a value as Python writes it, shortened to about one line."""
    text = _SHORT.repr(value)
    return text if len(text) <= _LINE else f"{text[: _LINE - 3]}..."


def sendable(text: str) -> str:
    """Return a text in which unpaired surrogates are replaced by escapes, because no encoding can send them."""
    return text.encode("utf-8", "backslashreplace").decode()


class AutotunerError(Exception):
    """The base class of every error that this product raises on purpose. All of them can be pickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return _as_it_was, (type(self), self.args, self.__dict__)


def _as_it_was(cls: type[AutotunerError], args: tuple[object, ...], state: dict[str, object]) -> AutotunerError:
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(state)
    return error


class InvalidInput(AutotunerError, ValueError):
    """Raised when a value that a caller gave breaks a rule.

    Attributes:
        field: Path of the value, dots between names (``cluster.num_nodes``).
        value: The given value.
        rule: The rule, as a sentence without a full stop: ``must be 1 or more``.
        nearest: The nearest legal value; None: it is not known.

    Example:
        >>> print(InvalidInput("cluster.num_nodes", 0, "must be 1 or more", 1))
        cluster.num_nodes = 0: must be 1 or more; nearest legal value: 1
    """

    def __init__(self, field: str, value: object, rule: str, nearest: object = None) -> None:
        self.field = sendable(field)
        self.value = value
        self.rule = sendable(rule)
        self.nearest = nearest
        near = str(nearest)
        near = near if len(near) <= _LINE else f"{near[: _LINE - 3]}..."
        hint = "" if nearest is None else f"; nearest legal value: {near}"
        given = field if value is None and rule.startswith("is required") else f"{field} = {quoted(value)}"
        super().__init__(sendable(f"{given}: {rule}{hint}"))

    @property
    def complaints(self) -> tuple[InvalidInput, ...]:
        """The broken rules, one error for each: this error alone. The subclass ``InvalidDocument`` has several."""
        return (self,)

    def under(self, parent: str) -> InvalidInput:
        """Return the same error with the name of a parent object put before the path of its field."""
        return InvalidInput(f"{parent}.{self.field}", self.value, self.rule, self.nearest)


_MAX_SAID = 5
"""Most violations in the sentence for people."""


class InvalidDocument(InvalidInput):
    """Raised when one or more values of a document break rules.

    ``field``, ``value``, ``rule`` and ``nearest`` describe the first broken rule; ``complaints`` has all broken rules.
    """

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
        """The broken rules, one error for each; at most the first 50."""
        return (InvalidInput(self.field, self.value, self.rule, self.nearest), *self._others)

    def under(self, parent: str) -> InvalidDocument:
        """Return the same error with the name of a parent object put before the path of each field."""
        return InvalidDocument([each.under(parent) for each in self.complaints], self._num_found)


def in_one_line(complaints: Sequence[object], num_found: int) -> str:
    """Return the first few errors as one sentence, which ends with the number of further errors.

    Args:
        complaints: Errors, whose texts are used.
        num_found: Number of all errors that were found, which may be more than ``complaints`` has.
    """
    said = [str(each) for each in complaints[:_MAX_SAID]]
    if (more := num_found - len(said)) > 0:
        said.append(f"and {more} more")
    return "; ".join(said)


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One value of a request that breaks one rule, as answers show it."""

    field: str
    """Path of the wrong value in the request body, or name of the parameter."""
    value: object
    """The wrong value, cut off if it is longer than a line."""
    rule: str
    """Rule that the value breaks."""
    nearest: object = None
    """The legal value nearest to the given one; null if none is known."""

    def __str__(self) -> str:
        return str(InvalidInput(self.field, self.value, self.rule, self.nearest))


class Unreadable(InvalidInput):
    """Raised when a stored document cannot be read. This is an error of the service: no caller can correct it."""

    def __init__(self, kind: str, text: str, problem: Exception) -> None:
        super().__init__(f"stored {kind}", text, f"cannot be read: {problem}")


class NotFound(AutotunerError):
    """Raised when nothing is stored under a name or id."""

    def __init__(self, kind: str, key: str, nearest: str | None = None) -> None:
        self.kind = kind
        self.key = key
        self.nearest = nearest
        hint = "" if nearest is None else f"; did you mean {nearest!r}?"
        super().__init__(f"no {kind} {quoted(key)}{hint}")


class Conflict(AutotunerError):
    """Raised when a request contradicts stored data. The message says which data and how to go on."""


class Unauthenticated(AutotunerError):
    """Raised when credentials are missing or invalid."""


class NotAllowed(AutotunerError):
    """Raised when the caller is known but lacks the scope for the request."""

    def __init__(self, needed: str, scope: str | None) -> None:
        self.needed = needed
        self.scope = scope
        super().__init__(
            f"this request needs a token with the scope {needed}, but yours has the scope {scope or 'none'}; ask "
            "an administrator of the service for another token"
        )


class NotOwner(AutotunerError):
    """Raised when somebody else made the object that the caller wants to change."""

    def __init__(self, kind: str, key: str, created_by: str) -> None:
        self.created_by = created_by
        whose = (
            f"{quoted(created_by)} made it"
            if created_by
            else "it was made while the service needed no token, so it has no creator"
        )
        super().__init__(f"only its creator or an administrator can change the {kind} {quoted(key)}: {whose}")


class QuotaExceeded(AutotunerError):
    """Raised when a caller has used up a quota. The message says how much the quota allows.

    Attributes:
        retry_after_s: Longest time in seconds until enough of the quota is free; None: only the end of one of the
            caller's runs frees it.
    """

    def __init__(self, detail: str, retry_after_s: float | None = None) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(detail)


class TooOften(AutotunerError):
    """Raised when a caller sent too many requests; ``retry_after_s`` is the number of seconds to wait."""

    def __init__(self, detail: str, retry_after_s: int) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(detail)


class TooCostly(AutotunerError):
    """Raised when an answer would need more time or memory than the service allows. The message states the limit."""


class Busy(AutotunerError):
    """Raised when the service already has too many waiting requests.

    Attributes:
        retry_after_s: Seconds to wait before the next request.
    """

    def __init__(self, detail: str, retry_after_s: float) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(detail)


class LeaseLost(AutotunerError):
    """Raised when another worker now holds the lease of a run. The former holder must stop writing to the run."""

    def __init__(self, run_id: str, owner: str) -> None:
        self.run_id = run_id
        self.owner = owner
        super().__init__(
            f"worker {owner!r} no longer holds the lease on {run_id!r}, because another worker has taken it over"
        )


class StoreUnavailable(AutotunerError):
    """Raised when the database cannot be reached or written (a full disk, a lost connection)."""
