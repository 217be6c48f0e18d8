"""Builds megatron-core's dataclasses of what stands on standard input; a process of its own, since the import warns.

Reads a list of mappings, class name to fields; prints a list of what each said: nothing, or the complaint.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from typing import Any

_DTYPES = ("params_dtype", "pipeline_dtype")


def main() -> None:
    os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
    warnings.simplefilter("ignore")
    from megatron.core.distributed import DistributedDataParallelConfig  # noqa: PLC0415
    from megatron.core.optimizer import OptimizerConfig  # noqa: PLC0415
    from megatron.core.transformer.transformer_config import MLATransformerConfig, TransformerConfig  # noqa: PLC0415

    classes = {
        c.__name__: c for c in (TransformerConfig, MLATransformerConfig, DistributedDataParallelConfig, OptimizerConfig)
    }
    answers = [[_built(classes[name], fields) for name, fields in one.items()] for one in json.load(sys.stdin)]
    sys.stdout.write(json.dumps(answers))


def _built(kind: Any, fields: dict[str, Any]) -> str:
    import torch  # noqa: PLC0415

    values = {name: getattr(torch, value) if name in _DTYPES else value for name, value in fields.items()}
    try:
        kind(**values)
    except Exception as complaint:  # whatever it is, the test shows it
        return f"{type(complaint).__name__}: {complaint}"
    return ""


if __name__ == "__main__":
    main()
