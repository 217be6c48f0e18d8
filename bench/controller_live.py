"""A pipeline steered around links that become slow and die, lived through by real ranks.

Four gloo processes whose stages sleep 20 ms per pass, 12 micro-batches. Acceptance tests 5 and 6 of the notes on
arXiv 2504.19232: found within two steps, one re-plan per change of ceil(c / t_F) and none between, the healthy schedule
afterwards; a dead link costs less than two steps and no process.

    python -m bench.controller_live            # all of it, three minutes
    python -m bench.controller_live dies       # the stories with this word in their name
    python -m bench.controller_live cost       # what watching costs while nothing is wrong
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from autotuner.core.fault_trace import FaultTrace
from autotuner.core.measurement import LinkEvent, LinkEventKind
from autotuner.report.links import event_sentence
from autotuner.training.pipelines.steering import Powers
from bench.sleeping_pipeline import Lived, Run, live

ADAPTIVE = Powers(may_replan=True, may_delegate=True, num_delegates=6)

_COMPARED_STEPS = 25

_LATEST = 2
"""Steps within which a change is found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """A trace, and what is expected of it."""

    name: str
    trace: str
    num_steps: int
    replans: tuple[int, ...]
    """Steps whose faults call for another plan; all others call for none."""

    @property
    def run(self) -> Run:
        """The steps that tell it."""
        trace = FaultTrace.parse(self.trace, num_steps=self.num_steps)
        return Run(num_steps=self.num_steps, trace=trace, powers=ADAPTIVE)


STORIES = (
    Story(name="a link that is slow for a while", trace="7;2_3;0.06\n30;2_3;0", num_steps=40, replans=(7, 30)),
    Story(
        name="delays within ceil(c / t_F) = 3",
        trace="7;2_3;0.050\n13;2_3;0.058\n19;2_3;0.047\n25;2_3;0.055\n31;2_3;0",
        num_steps=38,
        replans=(7, 31),
    ),
    Story(name="two links, one after the other", trace="7;0_1;0.03\n14;2_3;0.06", num_steps=22, replans=(7, 14)),
    Story(name="a link that dies", trace="7;2_3;dead", num_steps=16, replans=()),
)


def check(story: Story, lived: Lived) -> Iterator[str]:
    """What is not as it should be."""
    replans = [event.step for event in lived.events if event.kind is LinkEventKind.REPLANNED]
    for fault, found in zip(story.replans, replans, strict=False):
        if not fault <= found < fault + _LATEST:
            yield f"what happened in step {fault} was answered behind step {found}"
    if len(replans) != len(story.replans):
        yield f"{len(replans)} re-plans, and {len(story.replans)} were called for"
    if any(event.kind is LinkEventKind.RANK_SLOW for event in lived.events):
        yield "a rank was called slow"


def lost_steps(lived: Lived, since: int, until: int) -> float:
    """Seconds beyond healthy steps, between two steps, in healthy steps."""
    healthy_s = median(lived.steps_s[1:since])
    return sum(step_s - healthy_s for step_s in lived.steps_s[since:until]) / healthy_s


def _tell(lived: Lived, cuts: Sequence[int]) -> None:
    for first, end in zip(cuts, [*cuts[1:], len(lived.steps_s)], strict=True):
        steps_s = lived.steps_s[first:end]
        settled_s = median(steps_s[_LATEST:]) if len(steps_s) > _LATEST else median(steps_s)
        shown = " ".join(f"{1e3 * step_s:.0f}" for step_s in steps_s[: _LATEST + 1])
        _say(f"  from step {first}: {shown} ..., settled at {1e3 * settled_s:.0f} ms")
    for event in lived.events:
        _say(f"  {event_sentence(event)}{_cost(event)}")


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201  # a benchmark prints its result


def _cost(event: LinkEvent) -> str:
    return f" ({1e3 * event.cost_s:.1f} ms)" if event.cost_s else ""


def watching_cost() -> float:
    """Share by which a healthy step is longer under a controller: medians of runs in turn, with and without one."""
    watched, alone = Run(num_steps=_COMPARED_STEPS, powers=ADAPTIVE), Run(num_steps=_COMPARED_STEPS)
    pairs = [(live(watched), live(alone)) for _ in range(2)]
    with_s = [step_s for one, _ in pairs for step_s in one.steps_s[1:]]
    without_s = [step_s for _, other in pairs for step_s in other.steps_s[1:]]
    return median(with_s) / median(without_s) - 1


def main() -> None:
    """Print every story, and what it should not have said."""
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    if word in ("", "cost"):
        _say(f"watching makes a healthy step {100 * watching_cost():+.2f} % longer")
    for story in [one for one in STORIES if word in one.name]:
        _say(f"{story.name}: {story.trace.replace(chr(10), ' ')}")
        lived = live(story.run)
        faults = [fault.step for fault in FaultTrace.parse(story.trace, num_steps=story.num_steps).faults]
        _tell(lived, [0, *faults])
        if "dead" in story.trace:
            lost = lost_steps(lived, faults[0], faults[0] + 3)
            _say(f"  lost {lost:.2f} steps; ranks {len(set(lived.pids))}, each the process that it was")
        _say("  " + ("; ".join(check(story, lived)) or "as it should be"))


if __name__ == "__main__":
    main()
