"""Rules of layouts that cannot run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from autotuner.catalog.hardware import load_cluster
from autotuner.core.blocks import LatentAttention, LinearAttention, MixtureOfExperts
from autotuner.core.choices import AttentionKernel, Fp8Recipe
from autotuner.core.codec import from_plain, to_plain
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.link import LinkHealth
from autotuner.core.network import Network
from autotuner.core.rules.legality import RULES, illegal, reasons, require_legal
from autotuner.core.rules.rule import Reason, Rule, fields_read
from autotuner.core.rules.trial_job import TRIAL_MODEL_RULES, TRIAL_RULES
from autotuner.core.stack import Stack
from autotuner.core.workload import LengthDistribution, Workload
from tests.builders import cpu_cluster, h100, h100_cluster, tiny_model
from tests.cases import each

LINEAR = LinearAttention(num_key_heads=2, num_value_heads=4, key_head_dim=16, value_head_dim=16)
LATENTS = LatentAttention(query_rank=16, key_value_rank=16, rope_head_dim=8, value_head_dim=16)
EXPERTS = MixtureOfExperts(num_experts=4, experts_per_token=2, expert_ffn_size=64)


def on_gpus(num_gpus: int, *, seq_len: int = 64, batch: int = 16, **model: Any) -> Job:
    """A tiny model on one node of that many H100s."""
    cluster = h100_cluster(num_nodes=1, accelerators_per_node=num_gpus)
    spec = tiny_model(**model)
    return Job(model=spec, cluster=cluster, workload=Workload(seq_len=seq_len, global_batch_size=batch))


def with_bf16_moments(job: Job) -> Job:
    return replace(job, workload=replace(job.workload, optimizer_state_precision="bf16"))


def on_nodes(num_nodes: int, per_node: int) -> Job:
    cluster = h100_cluster(num_nodes=num_nodes, accelerators_per_node=per_node)
    return Job(model=tiny_model(), cluster=cluster, workload=Workload(seq_len=64, global_batch_size=16))


def on_accelerator(number: int = 1, **changes: Any) -> Job:
    cluster = h100_cluster(num_nodes=1, accelerators_per_node=number, accelerator=h100(**changes))
    return Job(model=tiny_model(), cluster=cluster, workload=Workload(seq_len=64, global_batch_size=16))


def on_cores(number: int, num_nodes: int = 1) -> Job:
    cluster = cpu_cluster(number // num_nodes, num_nodes=num_nodes)
    job = Job(model=tiny_model(), cluster=cluster, workload=Workload(seq_len=64, global_batch_size=16))
    return replace(job, cluster=replace(cluster, accelerator=h100(kind="cpu")))


def over_network(num_nodes: int, per_node: int, **changes: Any) -> Job:
    """H100s on nodes whose network is described."""
    job = on_nodes(num_nodes, per_node)
    return replace(job, cluster=replace(job.cluster, network=Network(name="drawn", **changes)))


def over_link(**changes: Any) -> Job:
    """Two H100s over another link."""
    job = on_gpus(2)
    link = replace(job.cluster.intra_node_link, **changes)
    return replace(job, cluster=replace(job.cluster, intra_node_link=link))


def with_stack(name: str) -> Job:
    """Two H100s under another trainer."""
    return replace(on_gpus(2), stack=Stack(name=name))


def with_slow_link() -> Job:
    """Two H100s, between which messages are late."""
    job = on_gpus(2)
    return replace(job, cluster=replace(job.cluster, link_health=(LinkHealth(ends=(0, 1), delay_s=0.01),)))


def with_dead_link(count: int = 2, ends: tuple[int, int] = (0, 1), **changes: Any) -> Job:
    """H100s of one node, two of which no longer reach each other."""
    job = on_gpus(count, **changes)
    return replace(job, cluster=replace(job.cluster, link_health=(LinkHealth(ends=ends, is_dead=True),)))


def with_lengths(num_gpus: int) -> Job:
    """Sequences of 16 to 64 tokens."""
    job = on_gpus(num_gpus)
    lengths = LengthDistribution(lengths=(16, 64), weights=(1.0, 1.0))
    return replace(job, workload=replace(job.workload, lengths=lengths))


@dataclass(frozen=True)
class Case:
    """A layout that breaks one rule of a job, and besides it only those that must break with it."""

    rule: str
    job: Job
    words: str
    implied: str = ""

    @property
    def layout(self) -> Layout:
        return Layout.parse(self.words)


WITH_ALL = on_accelerator(attention_kernels=tuple(AttentionKernel))
"""On an accelerator that runs every kernel of attention."""

CASES = (
    Case("world-size", on_gpus(4), "tp2"),
    Case("kv-heads-per-tensor-rank", on_gpus(4), "tp4"),
    Case("ffn-per-tensor-rank", on_gpus(2, ffn_size=127), "tp2"),
    Case("expert-ffn-per-tensor-rank", on_gpus(2, experts=replace(EXPERTS, expert_ffn_size=63)), "tp2"),
    Case("tensor-group-inside-node", on_nodes(2, 1), "tp2"),
    Case("sequence-parallel-needs-tensor-ranks", on_gpus(1), "sp"),
    Case("sequence-per-tensor-rank", on_gpus(2, seq_len=63), "tp2 sp"),
    Case("sequence-per-context-rank", on_gpus(2, seq_len=66), "cp2"),
    Case("experts-per-expert-rank", on_gpus(8, experts=EXPERTS), "fsdp8 ep8"),
    Case("expert-ranks-are-borrowed", on_gpus(2, experts=EXPERTS), "dp2 ep2"),
    Case("layers-per-stage", on_gpus(8), "pp8"),
    Case("equal-virtual-stages", on_gpus(2, num_layers=5), "pp2 v2 interleaved_1f1b"),
    Case("smaller-ends-need-pipeline", on_gpus(1), "lessfirst1"),
    Case("smaller-last-stage-needs-pipeline", on_gpus(1), "lesslast1"),
    Case("stages-between-hold-a-layer", on_gpus(6), "pp6"),
    Case("smaller-ends-have-what-they-give", on_gpus(2), "pp2 lesslast5"),
    Case("virtual-stages-fit-schedule", on_gpus(2), "pp2 interleaved_1f1b"),
    Case("schedule-needs-pipeline", on_gpus(1), "gpipe"),
    Case("whole-micro-batches", on_gpus(1), "mb3"),
    Case("micro-batches-fill-pipeline", on_gpus(4, batch=2), "pp4"),
    Case("micro-batches-in-rounds", on_gpus(2, batch=5), "pp2 v2 interleaved_1f1b"),
    Case("shard-degree-fits-level", on_gpus(2), "shard2"),
    Case("reshard-needs-sharded-parameters", on_gpus(2), "zero2 reshard"),
    Case("attention-kernel-on-hardware", on_accelerator(attention_kernels=(AttentionKernel.MATH,)), ""),
    Case("flash-needs-half-precision", on_gpus(1), "fp32"),
    Case("precision-on-hardware", on_accelerator(fp8_flop_per_s=0.0), "fp8"),
    Case("fp8-block-shape", on_gpus(2, head_dim=8), "tp2 fp8"),
    Case("fp8-token-blocks", on_gpus(1, seq_len=24), "fp8"),
    Case("recipe-needs-fp8", on_gpus(1), "bf16 rowwise"),
    Case("recipe-on-hardware", on_accelerator(fp8_recipes=(Fp8Recipe.TENSORWISE,)), "mxfp8"),
    Case("gathered-logits-need-tensor-ranks", on_gpus(1), "gathered-logits"),
    Case("async-tensor-parallel-needs", on_gpus(2), "tp2 async-tp"),
    Case("async-tensor-parallel-on-hardware", on_accelerator(2, kind="rocm"), "tp2 sp async-tp compiled"),
    Case("context-exchange-needs-context-ranks", on_gpus(1), "cp-all_gather"),
    Case("heads-per-context-rank", on_gpus(4), "cp4 cp-all_to_all"),
    Case("recompute-interval-needs-recompute", on_gpus(1), "every2"),
    Case("recompute-interval-within-stage", on_gpus(2), "pp2 recompute-full every3"),
    Case("buckets-need-replicas", on_gpus(1), "bucket1000000"),
    Case("fp32-reduce-needs-half-precision", on_gpus(1), "fp32-reduce"),
    Case("offload-on-hardware", on_accelerator(kind="cpu"), "offload"),
    Case(
        "optimizer-offload-on-hardware",
        replace(on_accelerator(kind="cpu"), stack=Stack(name="megatron-core")),
        "optoffload50",
    ),
    Case("slack-needs-adaptive-schedule", on_gpus(2), "pp2 slack1"),
    Case("slack-below-micro-batches", on_gpus(2), "pp2 adaptive slack16"),
    Case("delegates-need-stages", on_gpus(2), "dp2 delegated"),
    Case("delegates-in-software", with_stack("megatron"), "pp2 delegated"),
    Case("number-of-delegates-needs-delegates", on_gpus(2), "pp2 delegates2"),
    Case("delegates-share-micro-batches", on_gpus(2), "pp2 delegated delegates3"),
    Case("rank-order-needs-both-axes", on_gpus(2), "pp2 replicas_outermost"),
    Case("rotation-below-stages", with_slow_link(), "pp2 rotate2"),
    Case("rotation-needs-unequal-links", on_gpus(2), "pp2 rotate1"),
    Case("optimizer-offload-percent-in-software", on_gpus(1), "optoffload50"),
    Case("collective-algorithm-needs-ranks", on_gpus(1), "algo-ring"),
    Case("collective-protocol-needs-ranks", on_gpus(1), "proto-simple"),
    Case("collective-channels-needs-ranks", on_gpus(1), "channels8"),
    Case("collective-algorithm-on-hardware", on_accelerator(2, kind="cpu"), "dp2 algo-nvls"),
    Case("collective-algorithm-needs-summed-gradients", on_accelerator(2, kind="cpu"), "pp2 algo-tree"),
    Case("collective-protocol-on-hardware", on_cores(2), "dp2 proto-simple"),
    Case("collective-channels-on-hardware", on_cores(2), "dp2 channels8"),
    Case("nvls-needs-switches-that-add", on_gpus(2), "dp2 algo-nvls"),
    Case("nvls-runs-simple", over_link(multicast_efficiency=0.7), "dp2 algo-nvls proto-ll"),
    Case("collnet-needs-network-that-adds", over_network(2, 1, num_rails=1), "dp2 algo-collnet"),
    Case("collnet-runs-simple", over_network(2, 1, adds=True), "dp2 algo-collnet proto-ll128"),
    Case("ll128-needs-nvlink", over_link(bandwidth_bytes_per_s=63e9), "dp2 proto-ll128"),
    Case("collective-channels-there-are", on_gpus(2), "dp2 channels65"),
    Case("two-level-needs-two-levels", on_nodes(2, 2), "dp2 pp2 two_level"),
    Case("rank-placement-needs-nodes", on_gpus(2), "dp2 cyclic"),
    Case("cyclic-placement-parts-tensor-ranks", on_nodes(2, 2), "dp2 tp2 cyclic"),
    Case("pxn-on-hardware", on_cores(2), "dp2 no-pxn"),
    Case("pxn-needs-rails", on_nodes(2, 1), "dp2 no-pxn"),
    Case("queue-pairs-on-hardware", on_cores(2), "dp2 qps2"),
    Case("queue-pairs-need-network", on_gpus(2), "dp2 qps2"),
    Case("queue-pairs-there-are", on_nodes(2, 1), "dp2 qps129"),
    Case("lossy-exchange-needs-replicas", on_gpus(1), "sync-demo"),
    Case("gradient-sync-in-software", with_stack("megatron"), "dp2 sync-demo"),
    Case("sync-sparsity-needs-its-exchange", on_gpus(2), "dp2 sync-demo sparsity4"),
    Case("sync-chunk-needs-its-exchange", on_gpus(2), "dp2 sync-random chunk32"),
    Case("sync-top-k-needs-its-exchange", on_gpus(2), "dp2 sync-random largest2"),
    Case("sync-period-needs-its-exchange", on_gpus(2), "dp2 sync-random period2"),
    Case("sync-sign-needs-its-exchange", on_gpus(2), "dp2 unsigned"),
    Case("sync-decay-permille-needs-its-exchange", on_gpus(2), "dp2 decay990"),
    Case("payload-precision-needs-its-exchange", on_gpus(2), "dp2 payload-bf16"),
    Case("top-k-within-chunk", on_gpus(2), "dp2 sync-demo chunk32 largest33"),
    Case("momentum-decays", on_gpus(2), "dp2 sync-demo decay1001"),
    Case("clip-needs-replicas", on_gpus(1), "clip-pre"),
    Case("clip-before-reduction-needs-whole-gradients", on_gpus(2), "fsdp2 clip-pre"),
    Case("clip-before-reduction-needs-full-exchange", on_gpus(2), "dp2 sync-demo clip-bucket"),
    Case("gradient-clip-in-software", with_stack("megatron"), "dp2 clip-pre"),
    Case("balance-needs-lengths", on_gpus(2), "dp2 balance-snake"),
    Case("balance-needs-replicas", with_lengths(1), "balance-snake"),
    Case("dealing-needs-snake", with_lengths(2), "dp2 deal2"),
    Case("dealing-groups-divide-ranks", with_lengths(2), "dp2 balance-snake deal4"),
    Case("packing-needs-lengths", on_gpus(2), "dp2 packed"),
    Case("unequal-batches-need-one-stage", with_lengths(4), "dp2 pp2 balance-global_sort"),
    Case("packing-needs-whole-sequences", with_lengths(4), "dp2 cp2 packed"),
    Case("tensor-ranks-avoid-dead-links", with_dead_link(), "tp2"),
    Case("context-ranks-avoid-dead-links", with_dead_link(), "cp2"),
    Case("shard-ranks-avoid-dead-links", with_dead_link(), "fsdp2"),
    Case("expert-ranks-avoid-dead-links", with_dead_link(4, (0, 2), experts=EXPERTS), "fsdp4 ep4"),
    Case("heads-avoid-dead-links", with_dead_link(4, (0, 2), num_kv_heads=4), "cp4 cp-all_to_all"),
    Case("replicas-avoid-dead-links", with_dead_link(), "dp2"),
    Case("stages-avoid-dead-links", with_dead_link(), "pp2"),
)
TRIAL_CASES = (
    Case("trial-compiles-rows-of-one-length", with_lengths(1), "compiled"),
    Case("trial-recomputes-selectively-once", on_gpus(2), "pp2 v2 zbv recompute-selective"),
    Case(
        "trial-gathers-recomputed-experts-once",
        on_gpus(8, experts=EXPERTS),
        "fsdp4 ep2 pp2 reshard recompute-selective",
    ),
    Case("trial-compiles-whole-backwards", on_gpus(2), "pp2 zero_bubble compiled"),
    Case("trial-keeps-parameters-between-backwards", on_gpus(4), "fsdp2 pp2 zero_bubble reshard"),
    Case("trial-shards-gradients-of-whole-models", on_gpus(4), "shardgrad2 pp2"),
    Case("trial-stages-hold-a-layer", on_gpus(2), "pp2 lesslast4"),
    Case("trial-shards-over-data-ranks", on_gpus(2), "zero1 cp2"),
    Case("trial-fills-zero-bubble-rounds", on_gpus(2, batch=5), "pp2 zero_bubble"),
    # the builders' accelerator lists PyTorch's kernels, and none but SDPA's first
    Case("trial-runs-attention-kernel", on_gpus(1), "flash_1", implied="attention-kernel-on-hardware"),
    Case("trial-runs-torch", replace(on_gpus(1), stack=Stack(name="megatron")), ""),
    Case("trial-merges-blocks", on_gpus(2), "cp2 flex", implied="attention-kernel-on-hardware"),
    Case("trial-blocks-have-heads-of-eight", on_gpus(2, head_dim=12), "cp2"),
    Case("trial-shards-with-expert-ranks", on_gpus(2, experts=EXPERTS), "zero2 ep2"),
    Case("trial-shards-experts-evenly", on_gpus(6, experts=EXPERTS, batch=18), "fsdp6 ep2"),
    Case("trial-splits-tokens-for-experts", on_gpus(2, experts=EXPERTS, seq_len=63), "tp2 ep2"),
    Case(
        "trial-splits-shared-experts",
        on_gpus(2, experts=replace(EXPERTS, expert_ffn_size=63, num_shared_experts=1)),
        "tp2 ep2",
    ),
    Case("trial-rounds-no-experts", on_gpus(1, experts=EXPERTS), "fp8"),
    Case("trial-scales-fp8", on_gpus(1), "delayed"),
    Case("trial-multiplies-8-bits-or-more", on_accelerator(fp4_flop_per_s=9000e12), "nvfp4"),
    Case("trial-compiles-experts-with-their-layer", on_gpus(4, experts=EXPERTS), "fsdp4 ep2 compiled"),
    Case("trial-efficient-attention-has-equal-heads", on_gpus(1), "efficient"),
    Case("trial-efficient-attention-has-heads-of-eight", on_gpus(1, num_kv_heads=4, head_dim=12), "efficient"),
    Case("trial-flash-attention-has-heads-of-256-at-most", on_gpus(1, head_dim=264), ""),
    Case("trial-cudnn-attention-has-short-heads-of-eight", replace(WITH_ALL, model=tiny_model(head_dim=12)), "cudnn"),
    Case("trial-flex-attention-has-long-heads", replace(WITH_ALL, model=tiny_model(head_dim=8)), "flex"),
    Case("trial-keeps-fp32-moments", with_bf16_moments(on_gpus(1)), ""),
    Case("trial-climbs-trees-with-whole-gradients", on_cores(2), "fsdp2 algo-tree"),
    Case("trial-exchanges-on-one-level", on_nodes(2, 4), "dp2 fsdp4 cyclic sync-demo two_level"),
    Case("trial-experts-are-plain", on_gpus(1, experts=replace(EXPERTS, capacity_factor=1.0)), ""),
    Case("trial-attends-without-latents", on_gpus(1, num_kv_heads=4, latent_attention=LATENTS), ""),
    Case("trial-attends-without-windows", on_gpus(1, attention_window=8, num_windowed_layers=2), ""),
    Case("trial-rotates-pairs", on_gpus(1, head_dim=15), ""),
    Case("trial-attends-in-every-layer", on_gpus(1, linear_attention=LINEAR, num_linear_layers=3), ""),
    Case("trial-norms-each-block-once", on_gpus(1, num_norms_per_layer=4), ""),
    Case("trial-norms-heads-alike", on_gpus(1, qk_norm=True, qk_norm_of_all_heads=True), ""),
    Case("trial-attends-to-tokens-alone", on_gpus(1, attention_sinks=True), ""),
    Case("trial-gates-no-attention", on_gpus(1, attention_output_gate=True), ""),
    Case("trial-embeds-without-norm", on_gpus(1, embedding_norm=True), ""),
    Case("trial-projects-without-bias", on_gpus(1, output_bias=True), ""),
)
BY_NAME = {rule.name: rule for rule in (*RULES, *TRIAL_RULES)}
cases = each("case", [*CASES, *TRIAL_CASES], ids=lambda case: case.rule)


def test_every_rule_has_a_case_here_and_a_name_of_its_own() -> None:
    assert [case.rule for case in CASES] == [rule.name for rule in RULES]
    assert [case.rule for case in TRIAL_CASES] == [rule.name for rule in TRIAL_RULES]
    assert len(BY_NAME) == len(RULES) + len(TRIAL_RULES)


@cases
def test_a_rule_can_be_broken_alone_and_says_so(case: Case) -> None:
    rules = RULES if case in CASES else (*RULES, *TRIAL_RULES)
    found = {reason.rule: reason for reason in reasons(case.layout, case.job, rules)}
    assert set(found) == {case.rule, case.implied or case.rule}
    assert found[case.rule].message
    found[case.rule].value(case.layout, case.job)  # it names what there is


@cases
def test_the_nearest_value_repairs_the_rule_it_is_offered_for(case: Case) -> None:
    rule = BY_NAME[case.rule]
    (reason,) = reasons(case.layout, case.job, [rule])
    if case.rule in UNREPAIRED:
        assert reason.nearest is None
    else:
        assert not reasons(*_with(case, reason), [rule])


UNREPAIRED = {
    "world-size",  # which of five degrees to change is the caller's wish
    "sequence-per-context-rank",
    "stages-between-hold-a-layer",  # of both ends, or of fewer stages
    "smaller-ends-have-what-they-give",  # of either end, or of fewer stages
    "trial-stages-hold-a-layer",
    "expert-ranks-are-borrowed",
    "micro-batches-fill-pipeline",  # another degree may have to change
    "micro-batches-in-rounds",
    "trial-fills-zero-bubble-rounds",
    "tensor-ranks-avoid-dead-links",  # another degree has to change, too
    "context-ranks-avoid-dead-links",
    "shard-ranks-avoid-dead-links",
    "expert-ranks-avoid-dead-links",
    "replicas-avoid-dead-links",  # here by fewer of them; beside stages also by another rank order
    *(rule.name for rule in TRIAL_MODEL_RULES),  # it is the model that would have to change, whatever the layout says
}


def _with(case: Case, reason: Reason) -> tuple[Layout, Job]:
    """The layout, or the job, with the offered value, read as a caller's JSON would be."""
    if not reason.is_of_job:
        return from_plain(Layout, {**to_plain(case.layout), reason.field: reason.nearest}), case.job
    part, field = reason.field.split(".")
    document = to_plain(case.job)
    document[part] |= {field: reason.nearest}
    return case.layout, from_plain(Job, document)


def test_a_rule_that_no_layout_can_keep_is_blamed_on_the_job() -> None:
    blamed = {case.rule for case in TRIAL_CASES if reasons(case.layout, case.job, [BY_NAME[case.rule]])[0].is_of_job}
    of_the_model = {rule.name for rule in TRIAL_MODEL_RULES}
    assert blamed == {"trial-runs-torch", "trial-keeps-fp32-moments", *of_the_model}


def test_an_illegal_layout_is_refused_with_the_path_of_the_field_its_value_and_the_nearest() -> None:
    with pytest.raises(InvalidInput) as refusal:
        require_legal(Layout(), with_bf16_moments(on_gpus(1)), TRIAL_RULES)
    assert refusal.value.field == "workload.optimizer_state_precision"
    assert (refusal.value.value, refusal.value.nearest) == ("bf16", "fp32")


def test_the_fields_that_a_rule_reads_are_seen_also_by_way_of_derived_ones() -> None:
    read = fields_read(BY_NAME["layers-per-stage"], on_gpus(1))
    assert read == {"pipeline_parallel_degree", "virtual_stages_per_rank"}
    assert fields_read(BY_NAME["trial-runs-torch"], on_gpus(1)) == set()


EVERY_RULE = (*RULES, *TRIAL_RULES)
SPARSE = on_gpus(8, experts=replace(EXPERTS, num_experts=8))
OF_EVERY_RECIPE = replace(on_accelerator(fp8_recipes=tuple(Fp8Recipe)), model=tiny_model(ffn_size=144))


@each(
    ("job", "words", "why"),
    [
        (on_gpus(8), "fsdp4 tp2", "it breaks no rule"),
        (on_gpus(2, experts=EXPERTS), "tp2 ep2", "expert ranks may be the tensor ranks without any shards"),
        (on_gpus(4, experts=EXPERTS), "dp2 tp2 ep2 sync-demo", "tensor ranks hold the experts of lossy replicas"),
        (SPARSE, "fsdp8 ep2 reshard recompute-selective", "without a pipeline every forward pass gathers alike"),
        (SPARSE, "fsdp4 ep2 pp2 gpipe reshard recompute-selective", "as it does in GPipe"),
        (SPARSE, "fsdp4 ep4 pp2 reshard recompute-selective", "one rank holds each expert, and has none to gather"),
        (SPARSE, "fsdp4 pp2 reshard recompute-selective", "experts are gathered with their layer"),
        (on_gpus(4, experts=EXPERTS), "fsdp4 compiled", "experts are gathered with a layer that is compiled"),
        (on_gpus(4, experts=EXPERTS), "fsdp4 ep4 compiled", "or not at all"),
        (on_gpus(2), "dp2 bucket1048576", "whoever reduces whole gradients chooses their buckets"),
        (on_gpus(2), "cp2 bucket1048576", "so do context ranks"),
        (on_gpus(2), "zero2 bucket1048576", "so do ranks that shard the optimizer alone"),
        (on_gpus(2), "cp2 fp32-reduce", "whoever reduces whole gradients chooses their format"),
        (on_gpus(4), "dp2 zero2 sync-demo bucket1048576", "shards sum gradients before replicas exchange less"),
        (on_gpus(4), "dp2 zero2 sync-demo fp32-reduce", "in a format that they choose"),
        (on_gpus(4, batch=2), "pp4 gpipe", "GPipe may leave its pipeline unfilled"),
        (OF_EVERY_RECIPE, "fp8", "blocks of 16 fit"),
        (on_nodes(2, 2), "dp4 two_level", "replicas share nodes and reach others"),
        (on_nodes(2, 2), "fsdp4 two_level", "so do shards"),
        (on_nodes(2, 2), "dp2 cp2 two_level", "so do context ranks with replicas"),
        (on_nodes(2, 2), "dp4 cyclic two_level", "so do replicas that are dealt in turn"),
        (on_cores(4, 2), "dp4 algo-ring two_level", "rings and two levels run on cores too"),
        (on_cores(4, 2), "dp4 algo-tree two_level", "and trees"),
        (over_network(2, 2, num_rails=2), "dp4 no-pxn qps4", "there are rails to leave the relay out"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_layout_is_legal_where_its_job_gives_no_reason_against_it(job: Job, words: str, why: str) -> None:
    assert reasons(Layout.parse(words), job, EVERY_RULE) == (), why
    assert not illegal(Layout.parse(words), job, EVERY_RULE)


@pytest.mark.parametrize(
    ("job", "words", "rules"),
    [
        (on_gpus(2), "dp2 sync-demo bucket1048576", ["buckets-need-replicas"]),
        (on_gpus(2), "dp2 sync-demo fp32-reduce", ["fp32-reduce-needs-half-precision"]),
        (on_gpus(4, experts=EXPERTS), "dp2 tp2 ep2", ["trial-shards-with-expert-ranks"]),
        (on_gpus(2), "fsdp2 bucket1048576", ["buckets-need-replicas"]),
        (on_nodes(2, 2), "dp2 fsdp2 two_level", ["two-level-needs-two-levels"]),  # each group has one level
        (OF_EVERY_RECIPE, "mxfp8", ["fp8-block-shape"]),  # blocks of 32
        (
            replace(on_gpus(2, experts=EXPERTS), stack=Stack(splits_experts=True)),
            "tp2 ep2",
            ["expert-ranks-are-borrowed"],
        ),
        (
            on_gpus(4),
            "tp3 sp",
            ["world-size", "kv-heads-per-tensor-rank", "tensor-group-inside-node", "sequence-per-tensor-rank"],
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_layout_is_refused_with_every_rule_that_it_breaks(job: Job, words: str, rules: list[str]) -> None:
    found = {reason.rule for reason in reasons(Layout.parse(words), job, EVERY_RULE)}
    assert found >= set(rules)


def test_layouts_that_a_job_or_a_caller_rules_out_are_refused_and_flash_runs_in_fp32_on_a_cpu() -> None:
    job = Job(model=tiny_model(), cluster=cpu_cluster(1), workload=Workload(seq_len=64, global_batch_size=8))
    assert reasons(Layout.parse("fp32 flash"), job) == ()
    rule = Rule(
        "no-tensor-ranks", "tensor_parallel_degree", lambda x, j: x.tensor_parallel_degree > 1, lambda x, j: "no"
    )
    (reason,) = reasons(Layout.parse("tp2"), on_gpus(2), [rule])
    assert (reason.rule, reason.message, reason.nearest) == ("no-tensor-ranks", "no", None)
    assert reasons(Layout(), on_gpus(2), [rule]) == ()
    with pytest.raises(InvalidInput, match="learned positions") as refusal:
        on_gpus(1, seq_len=64, num_learned_positions=32)
    assert (refusal.value.field, refusal.value.nearest) == ("workload.seq_len", 32)


@pytest.mark.parametrize(
    ("accelerator", "words", "broken"),
    [
        ("l40s", "fp8 delayed", []),
        ("l40s", "fp8 blockwise", ["recipe-on-hardware"]),
        ("h100", "fp8 blockwise", []),
        ("h100", "mxfp8", ["recipe-on-hardware"]),
        ("b200", "mxfp8", []),
        ("h100", "nvfp4", ["precision-on-hardware"]),
        ("b200", "nvfp4", []),
    ],
)
def test_devices_have_the_formats_and_recipes_of_their_generation(
    accelerator: str, words: str, broken: list[str]
) -> None:
    job = replace(on_gpus(1), cluster=load_cluster(accelerator))
    assert [reason.rule for reason in reasons(Layout.parse(words), job)] == broken
