"""Whether a trial can run where it was started; asked before anything is built."""

from __future__ import annotations

from autotuner.core.accelerator import Accelerator
from autotuner.core.choices import AttentionKernel, Fp8Recipe, RankPlacement
from autotuner.core.cluster import Cluster
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job
from autotuner.core.link import Link, LinkHealth
from autotuner.core.network import Network
from autotuner.core.rules.legality import RULES, require_legal
from autotuner.core.rules.trial import TRIAL_RULES
from autotuner.core.trial_spec import OptimizerName, TrialSpec
from trials.runtime.rank import RankInfo

_UNEQUAL = (LinkHealth(ends=(0, 1), delay_s=1.0),)
"""What makes it matter which stage lies beside which link."""


def admit(spec: TrialSpec, rank_info: RankInfo) -> None:
    """Return if the layout is legal for the model and the workload on the ranks there are.

    Raises:
        InvalidInput: With the first rule that is broken, and the nearest value that keeps it.
    """
    require_legal(spec.layout, _job(spec, rank_info), (*RULES, *TRIAL_RULES))
    if spec.optimizer is not None and (refusal := spec.optimizer.refuses(spec.layout)):
        raise InvalidInput("optimizer", spec.optimizer.name.value, refusal, OptimizerName.ADAMW.value)


def _job(spec: TrialSpec, rank_info: RankInfo) -> Job:
    """The ranks as a cluster; the device's rates are 1 because no rule compares them, and 0 says that there is none.

    What a GPU and its links offer is known to whoever chose the layout for them, so here they offer all.
    """
    kernels = (AttentionKernel.MATH, AttentionKernel.FLASH)
    accelerator = Accelerator(
        name=spec.device,
        kind=spec.device,
        memory_bytes=1,
        memory_bandwidth_bytes_per_s=1.0,
        fp32_flop_per_s=1.0,
        bf16_flop_per_s=1.0,
        fp8_flop_per_s=0.0 if spec.device == "cpu" else 1.0,
        fp4_flop_per_s=0.0 if spec.device == "cpu" else 1.0,
        peak_source="",
        power_w=0.0,
        attention_kernels=kernels if spec.device == "cpu" else tuple(AttentionKernel),
        fp8_recipes=tuple(Fp8Recipe),
    )
    nodes = rank_info.nodes(RankPlacement.BLOCK)
    link = Link(name="any", bandwidth_bytes_per_s=1e12, latency_s=0.0, multicast_efficiency=1.0)
    cluster = Cluster(
        name="ranks of this trial",
        accelerator=accelerator,
        num_nodes=nodes.num_nodes,
        accelerators_per_node=nodes.ranks_per_node,
        intra_node_link=link,
        inter_node_link=link,
        link_health=_UNEQUAL if rank_info.world_size > 1 else (),
        network=Network(name="any", num_rails=nodes.ranks_per_node, adds=True),
    )
    return Job(model=spec.model, cluster=cluster, workload=spec.workload)
