"""The torch.distributed job that a sweep launches to try one layout.

``process`` starts the ranks: a fork server forks them, or torchrun runs ``__main__``. Each rank passes a ``TrialSpec``
to ``job``, which checks that the layout can run here, connects to the other ranks (``rank``), repeats the step and
reports the combined measurements of all ranks.

``model`` is the decoder. ``options`` changes its layers (recomputation, offload, fp8, compilation), and ``distributed``
splits it over ranks. ``step`` is one optimizer step, and ``measurement`` measures it. ``benchmarks`` measures devices
and links without a step. ``dry_run`` runs the same step on tensors without data.
"""
