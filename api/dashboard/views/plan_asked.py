"""What the inputs of ``/plan`` say, as the body of a plan, and what is wrong with each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Self

from api.dashboard.views.permalink import whole_number
from api.schemas import PlanCreate
from autotuner.catalog.hardware import load_accelerator
from autotuner.core.errors import AutotunerError, InvalidInput, NotFound, quoted
from autotuner.core.workload import Workload
from autotuner.search.planning.amounts import read_amount, read_duration_s, read_listed, read_numbers, read_prices
from autotuner.search.planning.goal import USUAL_GLOBAL_BATCH, USUAL_SEQ_LEN, Goal

USUAL: Mapping[str, str] = {
    "model": "llama-3-70b",
    "tokens": "2T",
    "deadline": "60d",
    "price_limit": "",
    "seq_len": str(USUAL_SEQ_LEN),
    "global_batch_size": str(USUAL_GLOBAL_BATCH),
    "accelerators": "",
    "sizes": "",
    "network": "1",
    "more_memory": "0",
    "prices": "",
    "stack": "torch",
}
"""What stands in each input before anybody types."""

_MAY_BE_EMPTY = ("deadline", "price_limit")
"""Inputs that say something by saying nothing."""

_INPUTS = {
    "num_tokens": "tokens",
    "deadline_s": "deadline",
    "cluster": "sizes",
    "goal": "deadline",
    "network_factors": "network",
    "extra_memory_bytes": "more_memory",
    "accelerator": "accelerators",
    "max_accelerators": "sizes",
}
"""The input that says a field of the plan where it is called otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanAsked:
    """What the inputs say.

    Attributes:
        texts: What stands in each input.
        errors: What is wrong, by input.
        body: The plan that is asked for; None before anybody asked, or where an input is wrong.
    """

    texts: Mapping[str, str]
    errors: Mapping[str, str] = field(default_factory=dict)
    body: PlanCreate | None = None

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Self:
        """What a query says; an empty one asks for nothing yet."""
        usual = USUAL if not query else {name: text for name, text in USUAL.items() if name not in _MAY_BE_EMPTY}
        texts = {name: query.get(name, "").strip() or usual.get(name, "") for name in USUAL}
        asked = cls(texts=texts)
        if not query.get("model"):
            return asked
        for error in _wrong(texts):
            asked = asked.with_error(error)
        if asked.errors:
            return asked
        try:
            return replace(asked, body=_body(texts))
        except AutotunerError as error:
            return asked.with_error(error)

    def with_error(self, error: AutotunerError) -> Self:
        """With a complaint beside the input that it is about."""
        match error:
            case InvalidInput():
                last = error.field.removeprefix("goal.").removeprefix("workload.")
                name = "prices" if last.startswith("prices") else _INPUTS.get(last, last)
                nearest = USUAL.get(name) if error.nearest is None else error.nearest
                said = f"{quoted(error.value)}: {error.rule}" + (f"; nearest: {nearest}" if nearest else "")
            case NotFound():
                name, said = _INPUTS.get(error.kind, error.kind), str(error)
            case _:
                name, said = "model", str(error)
        name = name if name in USUAL else "model"
        return replace(self, errors={**self.errors, name: self.errors.get(name, said)}, body=None)


_READERS: Mapping[str, Callable[[str], object]] = {
    "tokens": partial(read_amount, "tokens"),
    "deadline": partial(read_duration_s, "deadline"),
    "price_limit": partial(read_amount, "price_limit"),
    "seq_len": partial(whole_number, "seq_len"),
    "global_batch_size": partial(whole_number, "global_batch_size"),
    "accelerators": lambda text: [load_accelerator(name) for name in read_listed(text)],
    "sizes": partial(read_numbers, "sizes"),
    "network": partial(read_numbers, "network"),
    "more_memory": partial(read_numbers, "more_memory"),
    "prices": lambda text: read_prices("prices", read_listed(text)),
}
"""What reads an input, and raises what is wrong with it."""


def _wrong(texts: Mapping[str, str]) -> Iterator[AutotunerError]:
    """What is wrong with each input by itself."""
    for name, read in _READERS.items():
        if texts[name]:
            try:
                read(texts[name])
            except AutotunerError as error:
                yield error


def _body(texts: Mapping[str, str]) -> PlanCreate:
    return PlanCreate(
        model=texts["model"],
        workload=Workload(
            seq_len=whole_number("seq_len", texts["seq_len"]),
            global_batch_size=whole_number("global_batch_size", texts["global_batch_size"]),
        ),
        goal=Goal(
            num_tokens=read_amount("tokens", texts["tokens"]),
            deadline_s=read_duration_s("deadline", texts["deadline"]) if texts["deadline"] else None,
            price_limit=read_amount("price_limit", texts["price_limit"]) if texts["price_limit"] else None,
        ),
        stack=texts["stack"],
        accelerators=read_listed(texts["accelerators"]),
        sizes=tuple(int(size) for size in read_numbers("sizes", texts["sizes"])),
        network_factors=read_numbers("network", texts["network"]),
        extra_memory_bytes=tuple(round(1e9 * one) for one in read_numbers("more_memory", texts["more_memory"])),
        prices=dict(read_prices("prices", read_listed(texts["prices"]))),
    )
