"""A rule that layouts keep, or a job does.

A rule is one comparison written for one ``Layout``, with ``%``, ``<``, ``!=``, ``&`` and ``|`` only: numpy columns have
these operators too, so that the same line judges a table of a million layouts (``core.columns``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeAlias, cast

from autotuner.core.choices import Choice
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.value import value


@value
class Reason:
    """Why a layout cannot run."""

    rule: str
    """Name of the rule, stable enough to filter by."""
    field: str
    """What to change: a field of the layout, or the path of one of the job (``workload.seq_len``)."""
    message: str
    """A sentence with the numbers in it."""
    nearest: int | str | bool | None = None
    """The nearest value of ``field`` that keeps this rule, where one is known."""

    @property
    def path(self) -> str:
        """The field among all that a caller may send."""
        return self.field if self.is_of_job else f"layout.{self.field}"

    @property
    def is_of_job(self) -> bool:
        """Whether the job has to change, and no layout would do."""
        return "." in self.field

    def value(self, layout: Layout, job: Job) -> Any:
        """What the field holds now."""
        return reduce(getattr, self.field.split("."), job if self.is_of_job else layout)


@dataclass(frozen=True, slots=True)
class Rule:
    """One comparison that an impossible layout fails."""

    name: str
    field: str
    broken: Callable[[Layout, Job], bool]
    message: Callable[[Layout, Job], str]
    nearest: Callable[[Layout, Job], int | str | bool | None] = lambda layout, job: None
    is_idle: bool = False
    """The field means nothing beside the others: with its default the run is the same."""
    is_of_hardware: bool = False
    """Accelerators, links or software lack what the field asks for."""


Limit: TypeAlias = Callable[[str], Rule]
"""A rule that waits for its name."""

_Condition: TypeAlias = Callable[[Layout, Job], bool]
"""A comparison of one layout or of columns."""

_Message: TypeAlias = str | Callable[[Layout, Job], str]
"""Why a layout cannot run; a text may name ``{x.field}`` of the layout and ``{j.field}`` of the job."""


def named(limits: Mapping[str, Limit]) -> tuple[Rule, ...]:
    """Return rules by their names, which are stable: documentation and filters use them."""
    return tuple(limit(name) for name, limit in limits.items())


def refuse(
    field: str,
    broken: _Condition,
    message: _Message,
    nearest: object = None,
    *,
    is_idle: bool = False,
    is_of_hardware: bool = False,
) -> Limit:
    """Return a limit of one field.

    Args:
        field: The field to change.
        broken: Comparison of one layout or of columns.
        message: Why it cannot run.
        nearest: The legal value, or a function of layout and job; None: there is none.
        is_idle: The field means nothing beside the others.
        is_of_hardware: Accelerators, links or software lack what the field asks for.
    """
    say = message if callable(message) else lambda x, j: message.format(x=x, j=j)
    value: Any = nearest.label if isinstance(nearest, Choice) else nearest
    near = value if callable(value) else lambda x, j: value
    return lambda name: Rule(name, field, broken, say, near, is_idle=is_idle, is_of_hardware=is_of_hardware)


def held(
    field: str,
    value: int,
    message: _Message,
    when: _Condition = lambda x, j: True,
    *,
    is_idle: bool = False,
    is_of_hardware: bool = False,
) -> Limit:
    """Return the limit of a field that has one value where ``when`` holds; else as ``refuse``."""
    nearest = OPTIONS[field].to_plain(value)
    return refuse(
        field,
        lambda x, j: (getattr(x, field) != value) & when(x, j),
        message,
        nearest,
        is_idle=is_idle,
        is_of_hardware=is_of_hardware,
    )


def idle(field: str, message: _Message, when: _Condition) -> Limit:
    """Return the limit of a field that keeps its default where ``when`` holds, because it means nothing there."""
    return held(field, OPTIONS[field].default, message, when, is_idle=True)


def lacking(field: str, message: _Message, when: _Condition) -> Limit:
    """Return the limit of a field that keeps its default where ``when`` holds: hardware or software lacks the rest."""
    return held(field, OPTIONS[field].default, message, when, is_of_hardware=True)


def job_limit(path: str, broken: Callable[[Job], bool], message: _Message, nearest: str | None = None) -> Limit:
    """Return a limit that no layout can keep; ``path`` names the field of the job that can, ``nearest`` its value."""
    return refuse(path, lambda x, j: broken(j), message, nearest)


def fields_read(rule: Rule, job: Job) -> frozenset[str]:
    """The fields of a layout that a rule compares, seen while it judges a plain one; it reads the same of any."""
    view = _Recorded()
    rule.broken(cast("Layout", view), job)
    return frozenset(view.read)


class _Recorded:
    """A plain layout that remembers which of its fields were read, also by way of derived ones."""

    def __init__(self) -> None:
        self.read: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        if name in OPTIONS:
            self.read.add(name)
            return getattr(Layout(), name)
        return cast("property", getattr(Layout, name)).__get__(self)


def any_of(value: int, members: Iterable[int]) -> bool:
    """Whether a field has one of the values."""
    verdict = False
    for member in members:
        verdict = verdict | (value == member)
    return verdict


def maximum(left: int, right: int) -> int:
    """The larger of two integers, by operators alone."""
    return left + (right - left) * (right > left)
