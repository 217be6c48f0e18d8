"""The torch.distributed job that a sweep launches to try one layout.

One process per rank starts in ``__main__``, under torchrun, or is forked by the ``zygote`` and sent on an ``context``.
It hands a ``TrialSpec`` to ``job``. That asks ``admission`` whether the layout can run here and takes its ``place``
among the ranks; ``run`` builds the step, repeats it and puts together what the ranks saw. ``report`` writes it down
line by line; ``failure`` says what kind of death an exception was.

``model`` is the decoder and the options inside its layers, ``parallel`` what splits it over ranks, ``training`` one
optimizer step, ``measuring`` what is measured of it, ``dry`` the same step on tensors that hold nothing.
"""
