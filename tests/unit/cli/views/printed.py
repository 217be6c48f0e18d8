"""What a view prints on a terminal of so many columns."""

from __future__ import annotations

from typing import Any

from rich.console import Console, RenderableType

from api.schemas import PredictedLayout
from autotuner.domain.layouts.choice import PipelineSchedule, Recompute
from autotuner.domain.layouts.layout import Layout
from autotuner.domain.wire import to_dict
from tests.builders import prediction

__all__ = ["predicted", "predictions", "printed"]

LONG = Layout(
    tensor_parallel_degree=8,
    pipeline_parallel_degree=16,
    virtual_stages_per_rank=5,
    pipeline_schedule=PipelineSchedule.INTERLEAVED_1F1B,
    sequence_parallel=True,
    recompute=Recompute.SELECTIVE,
)


def predicted(rank: int, layout: Layout = LONG, **changes: Any) -> dict[str, Any]:
    likely: dict[str, Any] = {"relative_error": 0.12, "fit_probability": 0.97, "validated": True}
    item: dict[str, Any] = to_dict(PredictedLayout.of(rank, layout, prediction(**likely | changes)))
    return item


def predictions(*items: dict[str, Any]) -> dict[str, Any]:
    """What the service answers: the rows, and what their MFU is a share of."""
    told: dict[str, Any] = {
        "caveats": [],
        "unchanged": None,
        "not_searched": [],
        "shortfall": None,
        "current": None,
        "num_legal": 12,
    }
    return {"items": items, "reference_precision": "bf16", "reference_flop_per_s": 989e12, **told}


def printed(view: RenderableType, width: int) -> str:
    console = Console(width=width, markup=False)
    with console.capture() as capture:
        console.print(view)
    return capture.get()
