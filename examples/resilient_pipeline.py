"""A pipeline that goes on when a link turns slow, without the service:

    OMP_NUM_THREADS=1 torchrun --nproc-per-node 4 examples/resilient_pipeline.py

Each rank trains one stage of an MLP. The ranks time their passes and plan from these; then the link between the last
two stages turns 40 ms late, and later recovers. The controllers find both, and the ranks follow another plan each time.
docs/explanation/slow-links.md goes through it.
"""

from __future__ import annotations

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import Tensor, nn

from autotuner.schedules.planner import plan
from autotuner.schedules.simulate import PassTimes
from autotuner.training.pipelines import (
    ControlGroup,
    Controller,
    LinkCondition,
    LinkConditions,
    Neighbourhood,
    Powers,
    RankObservation,
    Standby,
    TimedStage,
    noticed_delays_s,
    pass_times,
)

MICRO_BATCHES, ROWS, WIDTH, LAYERS = 8, 64, 512, 4


def loss_fn(output: Tensor, target: Tensor) -> Tensor:
    return nn.functional.mse_loss(output, target)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--slow", type=int, default=10, help="step from which the last link is late")
    parser.add_argument("--well", type=int, default=20, help="step from which it is well again")
    parser.add_argument("--delay-s", type=float, default=0.04)
    arguments = parser.parse_args()
    rank, num_ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)

    # 1. a first plan for equal stages, and delegates before this process has threads
    schedule = plan(PassTimes.equal(num_ranks, 1.0, 1.0, 1.0), MICRO_BATCHES).schedule
    standby = Standby.start(Neighbourhood.of(schedule, rank), num_delegates=2)
    dist.init_process_group("gloo")

    # 2. this rank's stage
    torch.manual_seed(rank)
    module = nn.Sequential(*(layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.GELU())))
    stage = TimedStage(
        module,
        rank,
        num_ranks,
        torch.device("cpu"),
        input_args=torch.empty(ROWS, WIDTH, device="meta", requires_grad=rank > 0),
        output_args=torch.empty(ROWS, WIDTH, device="meta", requires_grad=True),
    )
    pipeline = standby.pipeline([stage], schedule, loss_fn=loss_fn)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3)

    # 3. a plan from the times that the ranks measured, and a controller
    controller: Controller | None = None
    torch.manual_seed(100)
    inputs, targets = torch.randn(MICRO_BATCHES * ROWS, WIDTH), torch.randn(MICRO_BATCHES * ROWS, WIDTH)
    for step in range(arguments.steps):
        is_late = arguments.slow <= step < arguments.well
        late = {(num_ranks - 2, num_ranks - 1): LinkCondition(delay_s=arguments.delay_s)} if is_late else {}
        pipeline.conditions = LinkConditions(of_pairs=late)  # only here: a real link turns slow by itself
        dist.barrier()
        began_s = time.perf_counter()
        losses: list[Tensor] = []
        pipeline.step(
            *((inputs,) if rank == 0 else ()),
            target=targets if rank == num_ranks - 1 else None,
            losses=losses,
            return_outputs=False,
        )
        optimizer.step()
        optimizer.zero_grad()
        events = controller.after_step(step) if controller is not None else ()
        if step == 2:
            group = ControlGroup(timeout_s=60.0)
            observations = group.gather(RankObservation.of(pipeline))
            times = pass_times(observations, noticed_delays_s(observations))
            pipeline.replan(plan(times, MICRO_BATCHES).schedule)
            controller = Controller(pipeline, group, powers=Powers(may_replan=True, may_delegate=True, num_delegates=2))
        if rank == num_ranks - 1:
            took_ms = 1e3 * (time.perf_counter() - began_s)
            print(f"step {step:2} {took_ms:6.1f} ms  loss {torch.stack(losses).mean().item():.4f}", flush=True)
            for event in events:
                print(
                    f"  {event.kind}: stages {event.stages}, {1e3 * event.delay_s:.0f} ms late, "
                    f"warm-up {event.warm_up}, delegates {event.delegated}",
                    flush=True,
                )
    pipeline.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
