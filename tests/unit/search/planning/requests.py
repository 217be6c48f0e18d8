"""Training runs that the tests of plans ask about: small models, so that a cluster takes milliseconds."""

from __future__ import annotations

from typing import Any

from autotuner.catalog.models import load_model
from autotuner.core.choices import Precision, Recompute, ShardLevel
from autotuner.core.stack import Stack
from autotuner.core.workload import Workload
from autotuner.search.planning.request import Goal, PlanRequest

DAY_S = 86_400.0

FEW = {
    "precision": (Precision.BF16,),
    "recompute": (Recompute.NONE,),
    "shard_level": (ShardLevel.PARAMETERS,),
    "tensor_parallel_degree": (1, 2),
    "pipeline_parallel_degree": (1,),
    "micro_batch_size": (1, 2),
}


def request_of(*, num_tokens: float = 1e11, goal: Goal | None = None, **fields: Any) -> PlanRequest:
    """Llama 3 8B on two small clusters, unless other fields are named."""
    usual: dict[str, Any] = {"accelerators": ("h100", "b200"), "sizes": (16, 32), "space": FEW}
    return PlanRequest(
        model=load_model("llama-3-8b"),
        workload=Workload(seq_len=4096, global_batch_size=256),
        goal=goal or Goal(num_tokens=num_tokens),
        stack=Stack(),
        **{**usual, **fields},
    )
