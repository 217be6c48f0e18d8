"""A machine that loses its power says nothing, and for a while nobody notices but its neighbours."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotuner.core.trial import EngineJobPhase, Stopped
from tests.contracts.engine_contract import EngineSubject, Once
from tests.contracts.held import HeldEngine
from tests.kubernetes.cluster import FakeCluster
from tests.trials.launching import Watcher

pytestmark = pytest.mark.engine


def test_ranks_that_fail_because_a_silent_machine_is_gone_are_no_failure_of_the_trial(tmp_path: Path) -> None:
    """They report a broken connection; the pod on that machine cannot be ended, and so it is found out."""
    with FakeCluster(tmp_path) as cluster:
        held = HeldEngine(lambda folder: cluster.table(grace_s=3), lose_node=lambda engine, handle, node_rank: None)
        subject = EngineSubject(held, tmp_path)
        launcher = subject.launcher()

        def cut_power() -> None:
            cluster.lose_node(cluster.pod(watcher.jobs[-1].name, 1), is_noticed=False)

        watcher: Watcher = Once(cut_power)
        outcome = launcher.run(
            subject.trial("kubernetes-silent", measured_steps=10**6, max_measured_steps=10**6), watcher
        )
        launcher.close()
    assert isinstance(outcome, Stopped)
    assert outcome.reason == "infrastructure"
    assert "node-1 does not answer" in outcome.detail
    assert watcher.jobs[-1].phase is EngineJobPhase.LOST
