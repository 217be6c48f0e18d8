"""The JSON codec: what the database, trial files and other releases hold."""

from __future__ import annotations

import json
from typing import Any

from autotuner.core.announcement import Webhook
from autotuner.core.cluster import Cluster
from autotuner.core.cluster_check import CheckFindings, CheckRequest
from autotuner.core.codec import dumps, from_plain, loads, to_plain
from autotuner.core.documents import restore
from autotuner.core.errors import InvalidInput
from autotuner.core.fault_trace import FaultTrace
from autotuner.core.layout import Layout
from autotuner.core.link import LinkHealth
from autotuner.core.measurement import LinkEvent, LinkEventKind, Measurement, StepReport
from autotuner.core.prediction import Prediction, TrialEstimate
from autotuner.core.profile import DeviceProfile, Measurements, ProfileRequest, with_links
from autotuner.core.sweep import SweepRequest
from autotuner.core.trial import ProxyTrial, TrialFailure
from autotuner.core.trial_spec import NodeTask, TrialSpec
from autotuner.core.upkeep import RetuneRequest
from tests import builders
from tests.fuzz.target import Target, json_of, text_of
from tests.unit.launch.trainers.log_readers.specs import spec

_REQUESTS = (
    builders.sweep_request(),
    spec(),
    NodeTask(job_name="t", num_nodes=2, ranks_per_node=8, time_limit_s=60.0, spec=spec(), files={"a": "b"}),
    RetuneRequest(name="nightly", template=builders.sweep_request(), cron="0 2 * * *"),
    ProfileRequest(device="cpu", num_ranks=2),
    ProfileRequest(device="cuda", num_ranks=8, wanted="links"),
    CheckRequest(links=True),
    FaultTrace.parse("7;2_3;0.06\n9;0_1;200mbit\n12;0_1;dead\n30;2_3;0"),
    builders.h100_cluster(4, link_health=(LinkHealth(ends=(2, 3), delay_s=0.03), LinkHealth(link_class="intra_node"))),
    builders.cpu_layout(),
    Webhook(name="team", url="https://hooks.example.com/x", secret="whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
)
_RESULTS = (
    builders.measurement(),
    builders.measurements(),
    builders.profile(),
    with_links(
        builders.profile(), (builders.link_point(0, 1), builders.link_point(0, 2)), measured_at=2.0, num_nodes=3
    ),
    LinkEvent(step=7, kind=LinkEventKind.LINK_SLOW, stages=(2, 3), delay_s=0.06),
    LinkEvent(step=9, kind=LinkEventKind.REPLANNED, warm_up=(9, 7, 5, 1), delegated=True, cost_s=0.1),
    CheckFindings(links=(builders.link_point(0, 1),)),
    builders.proxy_trial(),
    builders.estimate(),
    builders.failure(),
    builders.step_report(),
    builders.prediction(),
)
_CLASSES: dict[str, type[Any]] = {
    cls.__name__: cls
    for cls in (
        *(SweepRequest, TrialSpec, NodeTask, RetuneRequest, ProfileRequest, Layout, Webhook),
        *(CheckRequest, CheckFindings, Cluster, FaultTrace, LinkEvent),
        *(Measurement, Measurements, DeviceProfile, ProxyTrial, TrialEstimate, TrialFailure, StepReport, Prediction),
    )
}


def _read(data: bytes) -> None:
    """A stored value, as this release reads it and as it reads what a newer one wrote; what was read is written."""
    document = json_of(data)
    if not isinstance(document, list) or len(document) != 2 or document[0] not in tuple(_CLASSES):
        raise InvalidInput("document", None, "must be a class and what describes one")
    cls = _CLASSES[document[0]]
    try:
        value = from_plain(cls, document[1])
    except InvalidInput:
        restore(cls, document[1])
        return
    text = dumps(value)
    assert dumps(restore(cls, document[1])) == text
    assert dumps(loads(cls, text)) == text


def _loaded(data: bytes) -> None:
    loads(TrialSpec, text_of(data))


TARGETS = (
    *(
        Target(
            name=name,
            check=_read,
            seeds=tuple(json.dumps([type(value).__name__, to_plain(value)]).encode() for value in values),
            is_json=True,
        )
        for name, values in (("requests", _REQUESTS), ("results", _RESULTS))
    ),
    Target(name="text", check=_loaded, seeds=(dumps(spec()).encode(), b"[" * 2000, b'{"schema_version":1}')),
)
