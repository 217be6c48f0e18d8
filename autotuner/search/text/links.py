"""What a running pipeline finds out about its links, in words: the same on pages and on the command line."""

from __future__ import annotations

from collections.abc import Iterator

from autotuner.core.measurement import LinkEvent, LinkEventKind
from autotuner.core.units import format_seconds

_FINDINGS = {
    LinkEventKind.LINK_SLOW: "slow link",
    LinkEventKind.LINK_RECOVERED: "link recovered",
    LinkEventKind.LINK_DEAD: "dead link",
    LinkEventKind.RANK_SLOW: "slow rank",
    LinkEventKind.RANK_RECOVERED: "rank recovered",
    LinkEventKind.REPLANNED: "re-planned",
}


def event_in_words(event: LinkEvent) -> tuple[str, str]:
    """What happened, and its particulars: ``("slow link", "stages 2 and 3, 60 ms late")``."""
    return _FINDINGS[event.kind], ", ".join(_particulars(event))


def event_sentence(event: LinkEvent) -> str:
    """What happened and when: ``step 8: the link between stages 2 and 3 is 60 ms late``."""
    return f"step {event.step}: {_said(event)}"


def _said(event: LinkEvent) -> str:
    ends = " and ".join(map(str, event.stages))
    match event.kind:
        case LinkEventKind.LINK_SLOW:
            return f"the link between stages {ends} is {format_seconds(event.delay_s)} late"
        case LinkEventKind.LINK_RECOVERED:
            return f"the link between stages {ends} has recovered"
        case LinkEventKind.LINK_DEAD:
            return f"the link between stages {ends} is dead"
        case LinkEventKind.RANK_SLOW:
            return f"stage {ends} computes {format_seconds(event.delay_s)} longer per micro-batch; no link is at fault"
        case LinkEventKind.RANK_RECOVERED:
            return f"stage {ends} is as fast as before"
        case LinkEventKind.REPLANNED:
            ahead = f"{' '.join(map(str, event.warm_up))} forwards ahead"
            return f"re-planned: {ahead}, sends {'delegated' if event.delegated else 'inline'}"


def _particulars(event: LinkEvent) -> Iterator[str]:
    if event.stages:
        noun = "stage" if len(event.stages) == 1 else "stages"
        yield f"{noun} {' and '.join(map(str, event.stages))}"
    if event.delay_s:
        yield f"{format_seconds(event.delay_s)} late"
    if event.kind is LinkEventKind.REPLANNED:
        if event.warm_up:
            yield f"{' '.join(map(str, event.warm_up))} forwards ahead"
        yield f"sends {'delegated' if event.delegated else 'inline'}"
    if event.cost_s:
        yield f"took {format_seconds(event.cost_s)}"
