"""What ranks on a late link are asked to do."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import torch
import torch.distributed as dist

from autotuner.core.link import LinkHealth
from tests.builders import cpu_cluster
from tests.patience import PATIENCE_S
from tests.trials.joined import joined
from trials.faults import LateCollectives, Links
from trials.process.task import TaskContext


class _GivenUpSlowly:
    """What a backward pass leaves with each collective behind it: a Python object, which gloo's thread gives up."""

    def __init__(self) -> None:
        self.is_being_given_up = threading.Event()

    def __del__(self) -> None:
        self.is_being_given_up.set()
        time.sleep(0.2)  # for the main thread to be in the next collective when this wants Python's lock again


def reduces_while_gloo_gives_up_an_object(context: TaskContext) -> int:
    """A late reduction whose object is given up, under the lock of gloo's queue, while the next one is put there."""
    store = context.store()
    late = LateCollectives([joined(context, store=store)], torch.device("cpu"), seed=0, wait=lambda _: None)
    late.meet(Links.of(replace(cpu_cluster(2), link_health=(LinkHealth(ends=(0, 1), delay_s=1.0),))))
    if context.rank_info.rank == 0:
        given_up = _begin_a_reduction()
        store.set("begun", "")
        assert given_up.wait(PATIENCE_S)
    else:
        store.wait(["begun"])
        dist.all_reduce(torch.ones(4))
    dist.all_reduce(torch.ones(4))
    return 0


def _begin_a_reduction() -> threading.Event:
    """Leave a reduction to gloo that alone holds a slow object; the event is set when gloo gives it up."""
    slow = _GivenUpSlowly()
    torch._C._stash_obj_in_tls("context", slow)  # as torch.autograd does with each backward pass
    dist.all_reduce(torch.ones(4), async_op=True)
    torch._C._stash_obj_in_tls("context", None)
    return slow.is_being_given_up
