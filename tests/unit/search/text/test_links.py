"""Links and their events, in words."""

from __future__ import annotations

import pytest

from autotuner.domain.runs.link_event import LinkEvent, LinkEventKind
from autotuner.search.text.links import event_sentence


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (
            LinkEvent(step=8, kind=LinkEventKind.LINK_SLOW, stages=(2, 3), delay_s=0.06),
            "step 8: the link between stages 2 and 3 is 60 ms late",
        ),
        (
            LinkEvent(step=31, kind=LinkEventKind.LINK_RECOVERED, stages=(2, 3)),
            "step 31: the link between stages 2 and 3 has recovered",
        ),
        (
            LinkEvent(step=8, kind=LinkEventKind.LINK_DEAD, stages=(2, 3)),
            "step 8: the link between stages 2 and 3 is dead",
        ),
        (
            LinkEvent(step=8, kind=LinkEventKind.RANK_SLOW, stages=(1,), delay_s=0.02),
            "step 8: stage 1 computes 20 ms longer per micro-batch; no link is at fault",
        ),
        (LinkEvent(step=9, kind=LinkEventKind.RANK_RECOVERED, stages=(1,)), "step 9: stage 1 is as fast as before"),
        (
            LinkEvent(step=8, kind=LinkEventKind.REPLANNED, warm_up=(9, 5, 3, 1), delegated=True),
            "step 8: re-planned: 9 5 3 1 forwards ahead, sends delegated",
        ),
    ],
)
def test_an_event_is_said_with_its_step(event: LinkEvent, text: str) -> None:
    assert event_sentence(event) == text
