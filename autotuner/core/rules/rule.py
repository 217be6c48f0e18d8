"""Rule: a condition that a layout or a job must meet.

A rule is one comparison for one ``Layout``, written with ``%``, ``<``, ``!=``, ``&`` and ``|`` only. numpy columns have
these operators too, so that the same line checks a table of a million layouts (``core.columns``).
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
    """A reason why a layout cannot run: the broken rule, the field to change, and the nearest legal value."""

    rule: str
    """Name of the rule. It does not change from release to release, so that filters can use it."""
    field: str
    """Field to change: a field of the layout, or the path of a field of the job (``workload.seq_len``)."""
    message: str
    """Reason with its numbers, as a sentence."""
    nearest: int | str | bool | None = None
    """Nearest value of ``field`` that meets this rule; None if it is not known."""

    @property
    def path(self) -> str:
        """The path of the field in a request, such as ``layout.micro_batch_size`` or ``workload.seq_len``."""
        return self.field if self.is_of_job else f"layout.{self.field}"

    @property
    def is_of_job(self) -> bool:
        """True if the job must be changed, because no layout can keep the rule."""
        return "." in self.field

    def value(self, layout: Layout, job: Job) -> Any:
        """Return the present value of the field that this reason is about, from the layout or the job."""
        return reduce(getattr, self.field.split("."), job if self.is_of_job else layout)


@dataclass(frozen=True, slots=True)
class Rule:
    """A named condition that a layout must not meet, and the error message if it does."""

    name: str
    field: str
    broken: Callable[[Layout, Job], bool]
    message: Callable[[Layout, Job], str]
    nearest: Callable[[Layout, Job], int | str | bool | None] = lambda layout, job: None
    is_idle: bool = False
    """True if the rule is for a field that has no effect with the other values of the layout, so that the default gives
    the same run."""
    is_of_hardware: bool = False
    """True if the rule is broken because accelerators, links or software lack a capability."""


Limit: TypeAlias = Callable[[str], Rule]
"""A rule without a name: a function that makes the rule from its name."""

_Condition: TypeAlias = Callable[[Layout, Job], bool]
"""A comparison that is computed for one layout, or for columns of layouts."""

_Message: TypeAlias = str | Callable[[Layout, Job], str]
"""Text that says why a layout cannot run, or a function that makes the text. A text may contain ``{x.field}`` of the
layout and ``{j.field}`` of the job."""


def named(limits: Mapping[str, Limit]) -> tuple[Rule, ...]:
    """Return the rules made of these limits (rules without names). The key of each limit becomes the name of its rule.

    Names are stable, because documentation and filters use them.
    """
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
    """Return a limit (a rule that has no name yet) that forbids some values of one field.

    Args:
        field: Field to change.
        broken: Condition that is true if the rule is broken, for one layout or for columns of layouts.
        message: Reason why the layout cannot run.
        nearest: Nearest legal value, or a function of layout and job that returns it; None: it is not known.
        is_idle: Whether the rule exists because the field has no effect with the other values.
        is_of_hardware: Whether the rule exists because accelerators, links or software lack a capability.
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
    """Return a limit that allows only one value of a field while a condition is true.

    Args:
        field: Field to change.
        value: The only legal value.
        message: Reason why the layout cannot run with another value.
        when: Condition on layout and job under which the limit applies; by default it always applies.
        is_idle: Whether the rule exists because the field has no effect with the other values.
        is_of_hardware: Whether the rule exists because accelerators, links or software lack a capability.
    """
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
    """Return a limit that keeps a field at its default while a condition makes the field have no effect.

    Args:
        field: Field to change.
        message: Reason why the layout cannot run with another value.
        when: Condition on layout and job under which the field has no effect.
    """
    return held(field, OPTIONS[field].default, message, when, is_idle=True)


def lacking(field: str, message: _Message, when: _Condition) -> Limit:
    """Return a limit that keeps a field at its default while hardware or software lacks the other values.

    Args:
        field: Field to change.
        message: Reason why the layout cannot run with another value.
        when: Condition on layout and job under which the other values are missing.
    """
    return held(field, OPTIONS[field].default, message, when, is_of_hardware=True)


def job_limit(path: str, broken: Callable[[Job], bool], message: _Message, nearest: str | None = None) -> Limit:
    """Return a limit on the job, which no choice of a layout can avoid.

    Args:
        path: Path of the job's field to change.
        broken: Condition on the job that is true if the limit is broken.
        message: Reason why the job cannot run.
        nearest: Nearest legal value of that field; None: it is not known.
    """
    return refuse(path, lambda x, j: broken(j), message, nearest)


def fields_read(rule: Rule, job: Job) -> frozenset[str]:
    """Return the names of the layout fields that a rule reads when it checks a layout with default values."""
    view = _Recorded()
    rule.broken(cast("Layout", view), job)
    return frozenset(view.read)


_DEFAULT = Layout()


class _Recorded:
    """A layout that records which of its fields are read, also through derived properties."""

    def __init__(self) -> None:
        self.read: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        if name in OPTIONS:
            self.read.add(name)
            return getattr(_DEFAULT, name)
        return cast("property", getattr(Layout, name)).__get__(self)


def any_of(value: int, members: Iterable[int]) -> bool:
    """Return True if a field's value is one of the members; for a column, a column of booleans."""
    verdict = False
    for member in members:
        verdict = verdict | (value == member)
    return verdict


def maximum(left: int, right: int) -> int:
    """Return the larger one of two integers, or of two columns row by row."""
    return left + (right - left) * (right > left)
