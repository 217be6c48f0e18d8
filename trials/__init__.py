"""The torch.distributed job that a sweep launches to try one layout.

``process`` starts ranks: forked by a zygote, or under torchrun in ``__main__``. Each hands a ``TrialSpec`` to ``job``,
which asks whether the layout can run here, joins the other ranks (``rank``), repeats the step and reports what they saw
together.

``model`` is the decoder, ``options`` what changes its layers (recomputation, offload, fp8, compilation),
``distributed`` what splits it over ranks, ``step`` one optimizer step, ``measurement`` what is measured of it,
``benchmarks`` what is measured without it, ``dry_run`` the same step on tensors that hold nothing.
"""
