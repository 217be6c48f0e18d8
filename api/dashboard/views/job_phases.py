"""What the inputs of ``/phases`` say, and the answer as the page shows it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Self

from api.dashboard.views.permalink import whole_number
from api.schemas import PhasesRequest
from autotuner.catalog.phase_lines import read_phases
from autotuner.domain.jobs.job_phases import SwitchCost
from autotuner.domain.jobs.workload import Workload
from autotuner.errors import InvalidInput, NotFound, quoted
from autotuner.search.job_phases.plan import Course, PhasesPlan
from autotuner.search.planning.amounts import read_amount
from autotuner.units import GIGA

__all__ = ["PhasesAsked", "shown_courses"]

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


@dataclass(frozen=True, slots=True)
class PhasesAsked:
    """The texts of the inputs, by name."""

    texts: Mapping[str, str]

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Self:
        """What an address says, with the defaults for what it leaves out."""
        return cls({name: query.get(name, default) for name, default in _DEFAULTS.items()})

    @property
    def request(self) -> PhasesRequest:
        """The question as REST takes it.

        Raises:
            InvalidInput: A text is none that its input takes; the field is the input's name.
        """
        workload = Workload(
            seq_len=whole_number("seq_len", self.texts["seq_len"]),
            global_batch_size=whole_number("global_batch_size", self.texts["global_batch_size"]),
        )
        gb_per_s = self._number("storage")
        return PhasesRequest(
            model=self.texts["model"],
            cluster=self.texts["cluster"],
            workload=workload,
            num_tokens=read_amount("tokens", self.texts["tokens"]),
            phases=read_phases(self.texts["phases"]),
            switch=SwitchCost(
                restart_s=self._number("restart"), storage_bytes_per_s=None if gb_per_s is None else GIGA * gb_per_s
            ),
        )

    def wrong(self, error: InvalidInput | NotFound) -> tuple[str, str]:
        """The input that an error is about, and what is wrong with what stands there."""
        named = error.field.rpartition(".")[2] if isinstance(error, InvalidInput) else error.kind
        name = _INPUTS.get(named, named)
        if isinstance(error, NotFound):
            return name if name in _DEFAULTS else "phases", str(error)
        nearest = "" if error.nearest is None else f"; nearest: {error.nearest}"
        return name if name in _DEFAULTS else "phases", f"{quoted(error.value)}: {error.rule}{nearest}"

    def _number(self, name: str) -> float | None:
        text = self.texts[name].strip()
        if not text:
            return None
        try:
            value = float(text)
        except ValueError as error:
            raise InvalidInput(name, text[:30], "must be a number", _DEFAULTS[name] or "left out") from error
        if not 0.0 <= value <= 1e18:  # also refuses what is no number
            raise InvalidInput(name, text[:30], "must be 0 to 1e18", _DEFAULTS[name] or "left out")
        return value


def shown_courses(plan: PhasesPlan) -> Iterator[tuple[str, Course]]:
    """The courses that are drawn: the best, each phase in its own fastest where that is another, two that stay."""
    yield "best", plan.best
    if plan.greedy != plan.best:
        yield "each phase in its own fastest", plan.greedy
    for static in plan.statics[:2]:
        if static != plan.best:
            yield f"stays in {static.choices[0].label}", static
