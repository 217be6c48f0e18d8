"""Rows of a table as a reader of CSV finds them."""

from __future__ import annotations

SHAPES = {"model": "small", "layers": "16", "hidden": "1024", "heads": "16", "ffn": "2816", "vocab": "32000"}


def row(**cells: str) -> dict[str, str]:
    """A run of one layout on eight A100s; every cell may be replaced, and a blank one is as good as none."""
    run = {
        **SHAPES,
        "seq_len": "2048",
        "gpu": "A100-80GB",
        "num_gpus": "8",
        "global_batch": "64",
        "micro_batch": "2",
        "tp": "2",
        "pp": "2",
        "step_time_s": "1.5",
    }
    return run | cells
