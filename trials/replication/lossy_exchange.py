"""For any trainer: replicas that exchange less, without a service. ``docs/lossy-exchange.md`` shows how."""

from trials.replication.averaging import ParameterAverager
from trials.replication.ddp_hook import BucketExchange, exchange_hook
from trials.replication.demo import DemoReplicator
from trials.replication.elements import ElementReplicator, random_offsets, striding_offsets
from trials.replication.optimizer import ReplicatedOptimizer, local_parts
from trials.replication.replicator import BuildReplicator, FullReplicator, Replicator

__all__ = [
    "BucketExchange",
    "BuildReplicator",
    "DemoReplicator",
    "ElementReplicator",
    "FullReplicator",
    "ParameterAverager",
    "ReplicatedOptimizer",
    "Replicator",
    "exchange_hook",
    "local_parts",
    "random_offsets",
    "striding_offsets",
]
