"""FieldChange: an option for which two layouts have different values."""

from __future__ import annotations

from autotuner.core.layout import OPTIONS, RANK_DEGREES, Layout
from autotuner.core.value import value

_IN_ORDER = (*RANK_DEGREES, *(name for name in OPTIONS if name not in RANK_DEGREES))


@value
class FieldChange:
    """An option whose values differ between two layouts, with both values."""

    field: str
    """Name of the field of ``Layout``."""
    before: bool | int | str
    """Value in the first layout, in its JSON form: a choice is written as its label."""
    after: bool | int | str
    """Value in the second layout, in its JSON form."""


def difference(before: Layout, after: Layout) -> tuple[FieldChange, ...]:
    """Return the options whose values differ between two layouts. The degrees of parallelism come first."""
    pairs = ((name, getattr(before, name), getattr(after, name)) for name in _IN_ORDER)
    return tuple(
        FieldChange(field=name, before=OPTIONS[name].to_plain(one), after=OPTIONS[name].to_plain(other))
        for name, one, other in pairs
        if one != other
    )
