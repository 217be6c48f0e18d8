"""The torch.distributed job that a sweep launches to try one layout.

One process per rank starts in ``__main__`` and hands a ``TrialSpec`` to ``job``. That asks ``admission`` whether the
layout can run here, takes its ``place`` among the ranks, and makes a ``model`` that knows no parallelism parallel
(``mesh``, ``weights``, ``parallelize``, ``pipeline``). It feeds ``data`` to one optimizer ``step`` after another
(``build``, ``loss``, ``optimizer``) and turns what ``stopwatch``, ``memory``, ``gemm`` and ``cores`` saw into a
``Measurement`` (``measure``).
``report`` writes it down line by line; ``failure`` says what kind of death an exception was.
"""
