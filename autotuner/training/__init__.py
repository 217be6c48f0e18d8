"""Building blocks for any trainer on PyTorch, which the trial job uses like anybody else.

Each module is one building block and is imported by itself: the package imports nothing. It needs torch,
``autotuner.core`` and ``autotuner.schedules``, and no other part of the product.
"""

__all__ = [
    "batches",
    "clipping",
    "communicator",
    "lossy_exchange",
    "momentum",
    "pipelines",
    "ring_and_tree",
    "two_level",
]
