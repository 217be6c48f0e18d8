"""Starts: which batches and data-parallel degrees each optimizer of a study may be tried with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autotuner.core.errors import InvalidInput
from autotuner.core.rules.legality import RULES, reasons
from autotuner.core.rules.trial import TRIAL_RULES
from autotuner.core.study import OptimizerCandidate, OptimizerStudyRequest
from autotuner.core.trial_spec import OptimizerName, OptimizerSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much trains at once."""

    global_batch_size: int
    data_parallel_degree: int

    def __str__(self) -> str:
        return f"{self.global_batch_size} on {self.data_parallel_degree}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Starts:
    """What may be tried, and what not.

    Attributes:
        scales: By optimizer; an optimizer that has none is left out.
        refusals: Why others are left out, as sentences without a full stop.
    """

    scales: Mapping[OptimizerName, tuple[Scale, ...]]
    refusals: tuple[str, ...]


def starts_of(request: OptimizerStudyRequest) -> Starts:
    """The legal ones of all that the space names.

    Raises:
        InvalidInput: There are none.
    """
    scales: dict[OptimizerName, tuple[Scale, ...]] = {}
    refusals: dict[str, None] = {}  # in order, each once
    for name in request.space.optimizers:
        legal = []
        for scale in _scales(request):
            refusal = _refusal(request, name, scale)
            if refusal is None:
                legal.append(scale)
            else:
                refusals[refusal] = None
        if legal:
            scales[name] = tuple(legal)
    if not scales:
        asked = [str(scale) for scale in _scales(request)]
        raise InvalidInput("space", asked, f"holds nothing that can be tried: {next(iter(refusals))}")
    return Starts(scales=scales, refusals=tuple(refusals))


def _scales(request: OptimizerStudyRequest) -> list[Scale]:
    return [
        Scale(global_batch_size=batch, data_parallel_degree=degree)
        for degree in request.data_parallel_degrees
        for batch in request.global_batch_sizes
    ]


def _refusal(request: OptimizerStudyRequest, name: OptimizerName, scale: Scale) -> str | None:
    layout = request.layout_of(scale.data_parallel_degree)
    optimizer = OptimizerSettings(name=name, learning_rate=1.0)
    if layout.data_parallel_degree != scale.data_parallel_degree:
        return f"{scale.data_parallel_degree} data-parallel ranks are no multiple of the layout's replicas"
    if refusal := optimizer.refuses(layout):
        return f"{name}: {refusal}"
    tried = OptimizerCandidate(
        optimizer=optimizer,
        global_batch_size=scale.global_batch_size,
        data_parallel_degree=scale.data_parallel_degree,
    )
    broken = reasons(layout, request.job_of(tried), (*RULES, *TRIAL_RULES))
    return f"a batch of {scale} data-parallel ranks: {broken[0].message}" if broken else None
