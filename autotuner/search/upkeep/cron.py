"""Cron expressions: their due times in the wall-clock time of a time zone, and the run that is due now."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from itertools import islice, takewhile
from typing import Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from cronsim import CronSim, CronSimError

from autotuner.core.errors import InvalidInput
from autotuner.core.upkeep import Retune, Trigger

_FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day of month", 1, 31), ("month", 1, 12), ("day of week", 0, 7))

_NIGHTLY = "0 2 * * *"
"""Expression that an error message proposes if there is no nearer legal one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cron:
    """A cron expression of five fields, in a time zone.

    An expression with a fixed hour and minute is due exactly once on each of its days, even when clocks change. If its
    time is in the hour that is skipped in spring, it is due at the end of this hour. If its time is in the hour that is
    repeated in autumn, it is due at the first of the two times. An expression with ``*`` as minute or hour follows the
    clock instead: it is not due in the skipped hour, and it is due in both repeated hours (the rules of Debian's cron).
    """

    expression: str
    """Expression with five fields: minute, hour, day of month, month, day of week."""
    time_zone: str = "UTC"
    """Name of the time zone in the IANA database."""

    @classmethod
    def read(cls, expression: str, time_zone: str) -> Self:
        """Check a cron expression that a person wrote, such as ``0 2 * * 1``, and return it as a ``Cron``.

        Raises:
            InvalidInput: A field is not legal, no calendar day matches, or there is no such time zone.
        """
        cron = cls(expression=" ".join(expression.split()), time_zone=_known_zone(time_zone))
        _require_fields(cron.expression)
        try:
            CronSim(cron.expression, datetime(2000, 1, 1))
        except CronSimError as error:
            raise _never(cron.expression) from error
        if next(cron.due_times(after=0.0), None) is None:
            raise _never(cron.expression)
        return cron

    def due_times(self, *, after: float) -> Iterator[float]:
        """Yield every due time later than ``after``, in epoch seconds, the earliest first."""
        last = after
        for moment in self._moments(after):
            at = moment.timestamp()
            # a time in the skipped hour occurs once for each of its minutes; of a repeated hour, the first counts
            if at > last:
                last = at
                yield at

    def next_due_at(self, *, after: float) -> float:
        """Return the first due time later than ``after``, in epoch seconds."""
        return next(self.due_times(after=after))

    @property
    def in_words(self) -> str:
        """Text that says when the expression is due, such as ``At 02:00 on Monday``."""
        return CronSim(self.expression, datetime(2000, 1, 1)).explain()

    def _moments(self, after: float) -> Iterator[datetime]:
        try:
            yield from CronSim(self.expression, datetime.fromtimestamp(after, ZoneInfo(self.time_zone)))
        except OverflowError:  # the calendar ends with the year 9999
            return


def _known_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    # an unknown name, a path, or a folder of the database
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        nearest = get_close_matches(name, available_timezones(), 1, cutoff=0.0)
        rule = "must be the name of a time zone in the IANA database, such as Europe/Berlin"
        raise InvalidInput("time_zone", name, rule, nearest[0] if nearest else "UTC") from error
    return name


def _require_fields(expression: str) -> None:
    parts = expression.split()
    if len(parts) != len(_FIELDS):
        names = ", ".join(name for name, _, _ in _FIELDS)
        rule = f"must have five fields with spaces between them: {names}; for example {_NIGHTLY}"
        raise InvalidInput("cron", expression, rule)
    for index, (name, least, most) in enumerate(_FIELDS):
        if not _is_legal(index, parts[index]):
            rule = f"has {parts[index]} in the field {name}, which must be *, or numbers from {least} to {most}"
            raise InvalidInput("cron", expression, f"{rule}, such as 3, 1-5, 1,3 or */2", _nearest(parts, index))


def _is_legal(index: int, part: str) -> bool:
    try:
        CronSim(" ".join(part if each == index else "*" for each in range(len(_FIELDS))), datetime(2000, 1, 1))
    except CronSimError:
        return False
    return True


def _nearest(parts: list[str], index: int) -> str:
    """Return the expression with the numbers of one field moved into range.

    If that is not enough, the field gets its usual value.
    """
    _, least, most = _FIELDS[index]
    clamped = re.sub(r"\d+", lambda found: str(min(most, max(least, int(found[0])))), parts[index])
    usual = _NIGHTLY.split()[index]
    return " ".join([*parts[:index], clamped if _is_legal(index, clamped) else usual, *parts[index + 1 :]])


def _never(expression: str) -> InvalidInput:
    return InvalidInput(
        "cron",
        expression,
        f"is never due, because no month in it has such a day; a legal expression is, for example, {_NIGHTLY}",
    )


_LATE_S = 90.0
"""Delay after which a run counts as found late, and not as started by the clock. A loop checks every few seconds."""

_MOST_MISSED = 10_000
"""Largest number of missed runs that are counted: a week with a run every minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DueRun:
    """A run of a scheduled retuning that must be recorded, because it is due or because a user asked for it.

    A scheduled retuning repeats a sweep to find out whether the layout in use became slower or a better one exists.
    """

    expected_due_at: float | None
    """Next due time that was read from the store. The run is recorded only if the store still has this time, which
    shows that no other process has recorded it."""
    due_at: float
    """Due time of the run; the last one if several were missed."""
    next_due_at: float | None
    """Next due time of the retune, always later than now; None while the retune is paused."""
    trigger: Trigger
    num_missed: int = 0
    """Number of missed due times before ``due_at``."""
    skipped: bool = False
    """True if no sweep is started because the previous run is not finished."""


def due_run(retune: Retune, *, now: float, is_running: bool) -> DueRun | None:
    """Return the run of a scheduled retuning that is due now, or None if no run is due.

    A scheduled retuning repeats a sweep to find out whether the layout in use became slower or a better one exists. If
    several due times were missed, there is only one run for all of them.

    Args:
        retune: The scheduled retuning as it is stored.
        now: Epoch seconds.
        is_running: True if the previous run is not finished. The due run is then marked as skipped.
    """
    first = retune.next_due_at
    if first is None or first > now:
        return None
    cron = Cron(expression=retune.request.cron, time_zone=retune.request.time_zone)
    later = list(islice(takewhile(lambda at: at <= now, cron.due_times(after=first)), _MOST_MISSED))
    due_at = later[-1] if later else first
    is_late = bool(later) or now - due_at > _LATE_S
    return DueRun(
        expected_due_at=first,
        due_at=due_at,
        next_due_at=cron.next_due_at(after=now),
        trigger=Trigger.CAUGHT_UP if is_late else Trigger.CRON,
        num_missed=len(later),
        skipped=is_running,
    )
