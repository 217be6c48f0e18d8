from __future__ import annotations

from autotuner.domain.jobs.fault_trace import FaultTrace
from autotuner.domain.jobs.link_health import LinkHealth
from autotuner.search.text.faults import link_in_words, trace_in_words, under_trace

TRACE = FaultTrace.parse("4;2_3;0.06\n10;2_3;dead\n15;2_3;0", num_steps=20)


def test_a_link_is_said_with_what_ails_it() -> None:
    late = LinkHealth(ends=(2, 3), delay_s=0.06, jitter_s=0.005)
    assert link_in_words(late) == "link 2_3 60 ms ± 5 ms late"
    thin = LinkHealth(link_class="inter_node", bandwidth_bytes_per_s=25e6)
    assert link_in_words(thin) == "every inter-node link at 200 Mbit/s"


def test_a_trace_is_said_with_each_of_its_stretches() -> None:
    said = "20 steps in which link 2_3 is 60 ms late for 6, then link 2_3 is dead for 5"
    assert trace_in_words(TRACE) == said
    assert trace_in_words(FaultTrace(faults=(), num_steps=1)) == "1 step in which no link fails"


def test_robust_mfu_is_said_beside_the_healthy_one() -> None:
    assert under_trace(TRACE, 0.41) == "under the fault trace of 20 steps (41.0 % healthy)"
