"""Rules for every trainer except ours: options of exchanges, sends and placement that only our trials can run.

If a trainer packs or buckets sequences, its data loader does so, and the launch does not configure it. Ranks are
numbered by torchrun or in the same way: the ranks of a node have consecutive numbers.

Megatron numbers its ranks tp-cp-ep-dp-pp, or tp-cp-ep-pp-dp (``--use-tp-pp-dp-mapping``); torchtitan's mesh is pp,
dp_replicate, dp_shard, cp, tp; DeepSpeed's PipeModelDataParallelTopology has the axes pipe, data, model. The launcher
chooses the number of each node, so that the order of a hostfile can rotate the stages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from autotuner.core.choices import RankOrder
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.rules.rule import Limit, Rule, held, named


def keeps(field: str, message: str, when: Callable[[Layout, Job], bool] = lambda x, j: True) -> Limit:
    """Return a rule, without a name yet, that a field of the layout must have its default value.

    It is meant for a field in which a trainer offers no choice.

    Args:
        field: Name of the field of the layout.
        message: Reason for the rule, for error messages.
        when: Function that returns True for the layouts and jobs to which the rule applies.
    """
    return held(field, OPTIONS[field].default, message, when)


def decided_in_code(fields: Iterable[str], layout: Layout, whose: str) -> str:
    """Return a sentence that lists the fields which the export does not write, because somebody's code sets them.

    Args:
        fields: Names of the fields.
        layout: The layout. The sentence gives its values of these fields.
        whose: Owner of the code, such as "the script"; the sentence begins with it.
    """
    values = [f"{name} ({_word(name, layout)})" for name in OPTIONS if name in frozenset(fields)]
    return f"{whose} decides {', '.join(values)}"


def _word(name: str, layout: Layout) -> str:
    plain = OPTIONS[name].to_plain(getattr(layout, name))
    return ("on" if plain else "off") if isinstance(plain, bool) else str(plain)


_WHY = {
    "gradient_sync": (
        "{} always sums all gradients in every step; autotuner.training.lossy_exchange wraps an optimizer "
        "of your own training loop"
    ),
    "gradient_clip": (
        "{} clips gradients only after their reduction; autotuner.training.clipping has hooks for your own "
        "training loop"
    ),
    "batch_balance": (
        "the data loader of {} decides which sequences a rank gets; autotuner.training.batches has a sampler for this"
    ),
    "sequence_packing": "the data loader of {} decides whether sequences share a row",
    "collective_hierarchy": (
        "{} reduces over one group of all ranks; autotuner.training.two_level reduces on two levels"
    ),
    "rank_placement": "the launcher of {} numbers its ranks node by node",
}


def exchanges_and_batches(trainer: str, stack: str = "") -> tuple[Rule, ...]:
    """Return rules for a trainer that exchanges and clips gradients, batches data and numbers ranks in its own way.

    The product's own trials can vary some fields of a layout that no other trainer can. The rules require the default
    values of these fields.

    Args:
        trainer: Name of the trainer. The names of the rules begin with it, and the messages of the rules contain it.
        stack: Name of the trainer in the catalog of software. Options that exist only in other software must have their
            defaults.
    """
    limits = {field: keeps(field, why.format(trainer)) for field, why in _WHY.items()}
    others = (one for one in OPTIONS.values() if one.only_in and stack not in one.only_in)
    for one in others:
        message = f"{one.label} can be written only for {', '.join(one.only_in)}, not for {trainer}"
        limits[one.name] = keeps(one.name, message)
    return named({f"{trainer.lower()}-keeps-{field.replace('_', '-')}": limit for field, limit in limits.items()})


LAUNCHED = frozenset({"stage_rotation"})
"""Options that the launch command decides, and not the configuration."""


def sends_and_places(trainer: str, *, has_orders: bool = False) -> tuple[Rule, ...]:
    """Return rules for a trainer that offers no choice of how pipeline ranks send, or of how ranks are placed on nodes.

    The rules require that pipeline ranks send themselves, that stages are rotated by whole nodes only, and that ranks
    are numbered in the trainer's order.

    Args:
        trainer: Name of the trainer. The names of the rules begin with it, and the messages of the rules contain it.
        has_orders: True if the trainer can number ranks in several orders of the parallel axes. The last rule is then
            left out.
    """
    sends = f"pipeline ranks of {trainer} send and receive themselves, because it has no delegates"
    places = "stages can be rotated only by the order of nodes in a hostfile, but here several stages share a node"
    order = f"{trainer} always numbers its ranks with the stages outermost"
    limits = {
        "sends-inline": keeps("p2p_transport", sends),
        "rotates-whole-nodes": keeps("stage_rotation", places, _shares_nodes),
        "keeps-rank-order": keeps("rank_order", order),
    }
    if has_orders:
        del limits["keeps-rank-order"]
    return named({f"{trainer.lower()}-{name}": limit for name, limit in limits.items()})


def rotation_sentence(job: Job, layout: Layout) -> tuple[str, ...]:
    """Return a sentence, without a full stop, that says in which order the hostfile must list the nodes.

    The order puts the first pipeline stage on another node, as the layout's ``stage_rotation`` says. The result is
    empty if the layout does not rotate its stages.
    """
    if not layout.stage_rotation:
        return ()
    nodes = layout.world_size // layout.pipeline_parallel_degree // job.cluster.accelerators_per_node
    first = layout.stage_rotation * max(1, nodes) % job.cluster.num_nodes
    return (
        (
            f"for stage_rotation {layout.stage_rotation}, change the order of nodes: the hostfile must "
            f"begin with node {first} of the cluster, go on to the last node, and end with the nodes "
            "before it"
        ),
    )


def _shares_nodes(x: Layout, job: Job) -> bool:
    """Return True if a stage is not a whole number of nodes, or its ranks are not consecutive."""
    per_stage = x.data_parallel_degree * x.context_parallel_degree * x.tensor_parallel_degree
    return (per_stage % job.cluster.accelerators_per_node != 0) | (x.rank_order != RankOrder.STAGES_OUTERMOST)
