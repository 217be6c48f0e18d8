"""The possible meanings of a search text: sweeps, trials by id or number, or trials with certain layouts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from autotuner.core.errors import InvalidInput, NotFound
from autotuner.core.layout import OPTIONS, Layout, parse_words
from autotuner.core.sweep import SweepOverview
from autotuner.core.trial import Trial
from autotuner.report.finding import Finding
from autotuner.store.options import Page, SweepFilter, TrialFilter

if TYPE_CHECKING:
    from autotuner.store.sql import Store

_NUM_SWEEPS = 10
_NUM_TRIALS = 20
_LOOKED_AT = 200
"""Number of trials with the requested degrees, the fastest first, whose other options are compared with the search."""

_APART = re.compile(r"\b(tp|pp|dp|cp|ep|mb|v|fsdp|zero|trial)[ =]+([0-9]+)\b")
"""Pattern of a degree written apart from its number: ``tp 4``, ``tp=4``."""

_NUMBER = re.compile(r"(?:trial|#)?([0-9]{1,9})")

_COLUMNS = ("tensor_parallel_degree", "pipeline_parallel_degree", "micro_batch_size")
"""Fields of a layout by which the store can find trials."""

_DATA = "data_parallel_degree"
"""Name of the data-parallel degree (``dp8``) here and in rankings: data-parallel ranks, sharded or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """The words of a search, sorted by kind: words that name a trial's number, a layout, or a sweep."""

    number: int | None = None
    """Number of a trial, if the search has one."""
    layout: Mapping[str, Any] = field(default_factory=dict)
    """Fields of a layout that the search names; ``data_parallel_degree`` replaces its two parts."""
    rest: str = ""
    """Other words of the search, which are looked up in sweeps."""

    @classmethod
    def of(cls, asked: str) -> Self:
        """Return the words of a search text.

        ``llama tp 4 pp=2 recompute-full`` asks for trials with such a layout in sweeps whose description contains
        "llama".
        """
        number: int | None = None
        fields: dict[str, Any] = {}
        rest: list[str] = []
        for word in _APART.sub(r"\1\2", asked.lower()).split():
            if found := _NUMBER.fullmatch(word):
                number = int(found[1])
            elif said := _said(word):
                fields |= said
            else:
                rest.append(word)
        return cls(number=number, layout=fields, rest=" ".join(rest))

    def is_meant_by(self, layout: Layout) -> bool:
        """Return True if a layout has all the values that the search words name."""
        return all(_plain(layout, name) == value for name, value in self.layout.items())


def _said(word: str) -> Mapping[str, Any]:
    """Return the fields of a layout that a word names; empty if it names none."""
    try:
        said = parse_words(word)
    except InvalidInput:
        return {}
    replicas = said.pop("data_parallel_replicate_degree", None)
    return said if replicas is None else said | {_DATA: replicas}


def _plain(layout: Layout, name: str) -> Any:
    value = getattr(layout, name)
    return OPTIONS[name].to_plain(value) if name in OPTIONS else value


def exact_place(store: Store, asked: str) -> str | None:
    """Return the path of the page of the sweep or trial whose id is exactly the given text; None if there is none."""
    word = asked.strip()
    for path, read in (("sweeps", store.get_sweep), ("trials", store.get_trial)):
        try:
            read(word)
        except NotFound:
            continue
        return f"/{path}/{word}"
    return None


def find(store: Store, asked: str, *, now: float) -> Finding:
    """Return the sweeps and trials that a search text may mean, for the page of results.

    Args:
        store: The store to search.
        asked: The text of the search: names, ids, numbers of trials, or options of layouts such as ``tp 4``.
        now: Present time in epoch seconds.
    """
    words = Words.of(asked)
    text = words.rest if words.layout or words.number is not None else asked
    found, total = store.list_overviews(now=now, where=SweepFilter(text=text), page=Page(limit=_NUM_SWEEPS))
    layouts = _alike(store, words, now) if words.layout else []
    is_about_sweeps = bool(text.strip())
    return Finding(
        number=words.number,
        text=words.rest or asked,
        sweeps=tuple(found) if is_about_sweeps else (),
        num_sweeps=total if is_about_sweeps else 0,
        numbered=tuple(_numbered(store, found, words.number)),
        alike=tuple(layouts[:_NUM_TRIALS]),
        is_cut=len(layouts) > _NUM_TRIALS,
    )


def _numbered(
    store: Store, sweeps: Sequence[SweepOverview], number: int | None
) -> Iterator[tuple[Trial, SweepOverview]]:
    if number is None:
        return
    for sweep in sweeps:
        trials, _ = store.list_trials(sweep.id, page=Page(limit=1, offset=number))
        yield from ((trial, sweep) for trial in trials if trial.number == number)


def _alike(store: Store, words: Words, now: float) -> list[tuple[Trial, SweepOverview]]:
    where = TrialFilter(**{name: words.layout[name] for name in _COLUMNS if name in words.layout})
    is_all = not words.rest and set(words.layout) <= set(_COLUMNS)
    ranked, _ = store.ranking(where=where, page=Page(limit=_NUM_TRIALS + 1 if is_all else _LOOKED_AT))
    meant = [trial for trial in ranked if words.is_meant_by(trial.layout)]
    sweeps = {sweep_id: store.overview(sweep_id, now=now) for sweep_id in dict.fromkeys(one.sweep_id for one in meant)}
    return [(trial, sweeps[trial.sweep_id]) for trial in meant if _says(sweeps[trial.sweep_id], words.rest)]


def _says(sweep: SweepOverview, rest: str) -> bool:
    text = f"{sweep.name} {sweep.id} {sweep.model} {sweep.cluster} {sweep.created_by}".lower()
    return all(word in text for word in rest.split())
