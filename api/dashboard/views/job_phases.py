"""What the inputs of ``/phases`` say, and the answer as the page shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

from api.dashboard.views.address import whole_number
from autotuner.catalog.text import read_phases
from autotuner.core.errors import InvalidInput, NotFound, quoted
from autotuner.core.job import SwitchCost
from autotuner.core.requests import PhasesRequest
from autotuner.core.units import GIGA
from autotuner.core.workload import Workload
from autotuner.search.planning.phases import Course, PhasesPlan
from autotuner.search.planning.words import read_amount

_EXAMPLE = (
    "warm-up: 5 %; batch 128\nmain: 75 %\nthin network: 15 %; bandwidth 10gbit\nlong: 5 %; seq_len 131072; batch 32"
)

_DEFAULTS: Mapping[str, str] = {
    "model": "llama-3-8b",
    "cluster": "h100:32",
    "seq_len": "8192",
    "global_batch_size": "512",
    "tokens": "1T",
    "phases": _EXAMPLE,
    "restart": "",
    "storage": "",
}
"""What the page asks of itself until somebody does."""


_INPUTS: Mapping[str, str] = {
    "num_tokens": "tokens",
    "restart_s": "restart",
    "storage_bytes_per_s": "storage",
    "accelerator": "cluster",
    "num_nodes": "cluster",
}
"""The input that says a field of the question where it is called otherwise; all others are said by the phases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasesAsked:
    """What the inputs say."""

    texts: Mapping[str, str]
    """What stands in each input."""
    errors: Mapping[str, str] = field(default_factory=dict)
    """What is wrong, by input."""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Self:
        """What an address says, with the defaults for what it leaves out, and what no input can take of that."""
        asked = cls(texts={name: query.get(name, default) for name, default in _DEFAULTS.items()})
        for name, read in _READERS.items():
            try:
                read(asked.texts[name])
            except InvalidInput as error:
                asked = asked.with_error(error)
        return asked

    @property
    def request(self) -> PhasesRequest:
        """The question as REST takes it.

        Raises:
            InvalidInput: A text is none that its input takes; the field is the input's name.
        """
        read = {name: reader(self.texts[name]) for name, reader in _READERS.items()}
        return PhasesRequest(
            model=self.texts["model"],
            cluster=self.texts["cluster"],
            workload=Workload(seq_len=read["seq_len"], global_batch_size=read["global_batch_size"]),
            num_tokens=read["tokens"],
            phases=read["phases"],
            switch=SwitchCost(
                restart_s=read["restart"],
                storage_bytes_per_s=None if read["storage"] is None else GIGA * read["storage"],
            ),
        )

    def with_error(self, error: InvalidInput | NotFound) -> Self:
        """With a complaint beside the input that it is about."""
        if isinstance(error, NotFound):
            named, said = error.kind, str(error)
        else:
            named = error.field.rpartition(".")[2]
            nearest = "" if error.nearest is None else f"; nearest: {error.nearest}"
            said = f"{quoted(error.value)}: {error.rule}{nearest}"
        name = _INPUTS.get(named, named)
        return replace(self, errors={**self.errors, name if name in _DEFAULTS else "phases": said})


def _number(name: str, text: str) -> float | None:
    if not text.strip():
        return None
    nearest = _DEFAULTS[name] or "left out"
    try:
        value = float(text)
    except ValueError as error:
        raise InvalidInput(name, text[:30], "must be a number", nearest) from error
    if not 0.0 <= value <= 1e18:  # also refuses what is no number
        raise InvalidInput(name, text[:30], "must be 0 to 1e18", nearest)
    return value


_READERS: Mapping[str, Callable[[str], Any]] = {
    "seq_len": partial(whole_number, "seq_len"),
    "global_batch_size": partial(whole_number, "global_batch_size"),
    "tokens": partial(read_amount, "tokens"),
    "phases": read_phases,
    "restart": partial(_number, "restart"),
    "storage": partial(_number, "storage"),
}
"""What reads an input, and raises what is wrong with it; a model and a cluster are found by whoever answers."""


def shown_courses(plan: PhasesPlan) -> Iterator[tuple[str, Course]]:
    """The courses that are drawn: the best, each phase in its own fastest where that is another, two that stay."""
    yield "best", plan.best
    if plan.greedy != plan.best:
        yield "each phase in its own fastest", plan.greedy
    for static in plan.statics[:2]:
        if static != plan.best:
            yield f"stays in {static.choices[0].label}", static
