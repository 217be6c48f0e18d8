"""The inputs of ``/explore``: a job and a layout chosen by hand, with the errors of each input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from autotuner.api.dashboard.views.address import DEFAULT, Permalink, whole_number
from autotuner.catalog.hardware import accelerators
from autotuner.core.errors import InvalidInput
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.lines import read_lengths, read_links, written_lengths, written_links
from autotuner.core.option import Kind
from autotuner.search.space.moves import with_choice

ALL_RANKS = "all"
"""Value of the shard degree that means all remaining ranks, whatever their number."""

_SHARDS = "data_parallel_shard_degree"
_SWITCH = {"on": 1, "off": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The inputs of the page ``/explore`` after reading: the job, the layout, and the errors."""

    texts: Mapping[str, str]
    """Text of each input, as it was typed."""
    errors: Mapping[str, str] = field(default_factory=dict)
    """Errors by input."""
    link: Permalink
    """The job that the inputs describe; wrong inputs are replaced by those of ``DEFAULT``."""
    base: Layout | None = None
    """Layout in the address; None: the best predicted layout."""
    changes: Mapping[str, int] = field(default_factory=dict)
    """Values of options that single inputs set, in place of those of ``base``."""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Self:
        """Return the inputs that a query holds.

        The query may be that of a permalink, or that of the form if the browser runs no scripts, or a mixture of both.
        """
        errors: dict[str, str] = {}
        return cls(
            texts=dict(query),
            link=_link(query, errors),
            base=_base(query, errors),
            changes=_changes(query, errors),
            errors=errors,
        )

    @property
    def is_form(self) -> bool:
        """True if the query comes from the form, which sends every input. A permalink has fewer parameters."""
        return bool(self.changes) or "accelerator" in self.texts

    def with_error(self, name: str, text: str) -> Self:
        """Return a copy of these inputs with one more error: ``text`` is about the input ``name``."""
        return replace(self, errors={**self.errors, name: text})

    def layout(self, best: Layout) -> Layout:
        """Return the layout that the inputs ask for. Options that depend on other options are not adapted yet.

        Args:
            best: The layout to start from if the address names none.
        """
        layout = self.base or best
        for name, value in self.changes.items():
            if name == _SHARDS:
                layout = replace(layout, data_parallel_replicate_degree=2 if value else 1)
                layout = replace(layout, data_parallel_shard_degree=value or layout.data_parallel_shard_degree)
            else:
                layout = with_choice(layout, name, value)
        return layout


def _link(query: Mapping[str, str], errors: dict[str, str]) -> Permalink:
    numbers = {}
    for name in ("seq_len", "global_batch_size"):
        try:
            number = whole_number(name, query.get(name) or getattr(DEFAULT, name))
        except InvalidInput as error:
            errors[name] = error.rule
            continue
        if number:
            numbers[name] = number
        else:
            errors[name] = "must be 1 or more"
    asked = {name: query[name].strip() for name in ("model", "stack", "optimizer_state_precision") if query.get(name)}
    cluster, links = _cluster(query, errors), _links(query, errors)
    asked["lengths"] = _lengths(query, errors)
    return replace(DEFAULT, cluster=cluster, link_health=links, **asked, **numbers)  # type: ignore[arg-type]  # names of its own fields


def _links(query: Mapping[str, str], errors: dict[str, str]) -> str:
    """Return the links that are not nominal in the form of an address; empty, with an error, if a line is wrong."""
    try:
        return "|".join(written_links(read_links(query.get("link_health", ""))).splitlines())
    except InvalidInput as error:
        nearest = "" if error.nearest is None else f"; nearest: {error.nearest}"
        errors["link_health"] = f"{error.rule}{nearest}"
        return ""


def _lengths(query: Mapping[str, str], errors: dict[str, str]) -> str:
    """Return the lengths of sequences as an address writes them; empty, with an error, if a part is no length."""
    text = query.get("lengths", "").strip()
    try:
        return text if not text or text.startswith("sweep:") else written_lengths(read_lengths(text))
    except InvalidInput as error:
        nearest = "" if error.nearest is None else f"; such as {error.nearest}"
        errors["lengths"] = f"{error.rule}{nearest}"
        return ""


def _cluster(query: Mapping[str, str], errors: dict[str, str]) -> str:
    """Return the cluster's name from accelerator and count in the form, or the name in the address."""
    accelerator = query.get("accelerator", "").strip()
    if accelerator not in accelerators():
        return accelerator or query.get("cluster", "").strip() or DEFAULT.cluster
    try:
        count = whole_number("count", query.get("count") or 8)
    except InvalidInput as error:
        errors["count"] = error.rule
        count = 8
    network = query.get("network", "").strip()
    return f"{accelerator}:{count}@{network}" if network else f"{accelerator}:{count}"


def _base(query: Mapping[str, str], errors: dict[str, str]) -> Layout | None:
    words = query.get("layout", "").strip()
    try:
        return Layout.parse(words) if words else None
    except InvalidInput as error:
        hint = "" if error.nearest is None else f"; the nearest word is {error.nearest}"
        errors["layout"] = f"{error.value} {error.rule}{hint}"
        return None


def _changes(query: Mapping[str, str], errors: dict[str, str]) -> dict[str, int]:
    changes: dict[str, int] = {}
    for name in OPTIONS:
        if query.get(name):
            try:
                changes[name] = _value(name, query[name].strip())
            except InvalidInput as error:
                errors[name] = error.rule
    return changes


def _value(name: str, text: str) -> int:
    """Return the value of an option from the text of its control: a number, the word of a choice, on or off."""
    one = OPTIONS[name]
    if name == _SHARDS and text == ALL_RANKS:
        return 0
    if one.kind is Kind.CHOICE:
        return one.from_plain(text)
    if one.kind is Kind.SWITCH:
        if text not in _SWITCH:
            raise InvalidInput(name, text, "must be on or off")
        return _SWITCH[text]
    number = whole_number(name, text)
    if number < one.lowest:
        raise InvalidInput(name, text, f"must be {one.lowest} or more", one.lowest)
    return number
