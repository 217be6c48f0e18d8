"""Descriptions of models and clusters: ``config.json``, our own JSON, names of the catalog."""

from __future__ import annotations

import json
import math

from autotuner.catalog.hardware import load_accelerator, load_cluster, load_link
from autotuner.catalog.huggingface import from_config
from autotuner.catalog.models import load_model
from autotuner.catalog.named import cluster_described, model_described
from autotuner.catalog.software import load_stack
from autotuner.core.codec import dumps, from_plain, loads, to_plain
from autotuner.core.errors import InvalidInput, NotFound
from autotuner.core.model import TransformerSpec
from tests import builders
from tests.fuzz.target import Target, json_of, text_of
from tests.unit.catalog.huggingface.published import published

_COUNTABLE = 10**100
"""Sizes of our own JSON are bounded where a request carries them."""


def _config(data: bytes) -> None:
    document = json_of(data)
    if not isinstance(document, dict):
        raise InvalidInput("document", None, "must be an object")
    _hold(from_config(document, "m"))


def _model(data: bytes) -> None:
    _hold(model_described(json_of(data)))


def _hold(model: TransformerSpec) -> None:
    """What was read can be stored, and counted."""
    assert loads(TransformerSpec, dumps(model)) == model
    assert model.num_parameters > 0
    if model.num_parameters < _COUNTABLE:
        assert math.isfinite(model.model_flop_per_token(2048))


def _cluster(data: bytes) -> None:
    cluster = cluster_described(json_of(data))
    assert from_plain(type(cluster), to_plain(cluster)) == cluster


def _name(data: bytes) -> None:
    text = text_of(data)
    for load in (load_model, load_accelerator, load_cluster, load_stack, load_link):
        try:
            load(text)
        except (InvalidInput, NotFound) as error:  # each is asked
            str(error).encode()


TARGETS = (
    Target(
        name="config",
        check=_config,
        seeds=tuple(json.dumps(one.config).encode() for one in published()),
        is_json=True,
    ),
    Target(
        name="described",
        check=_model,
        seeds=(
            dumps(builders.tiny_model()).replace('"schema_version":1,', "").encode(),
            dumps(load_model("mixtral-8x7b")).replace('"schema_version":1,', "").encode(),
            dumps(load_model("deepseek-v3")).replace('"schema_version":1,', "").encode(),
            b'{"base": "llama-3-8b", "num_layers": 4}',
            b'{"model_type": "llama", "hidden_size": 64}',
        ),
        is_json=True,
    ),
    Target(
        name="cluster",
        check=_cluster,
        seeds=(
            dumps(builders.h100_cluster()).replace('"schema_version":1,', "").encode(),
            dumps(builders.cpu_cluster()).replace('"schema_version":1,', "").encode(),
            b'{"accelerator": "h100", "num_nodes": 4, "inter_node_link": {"base": "ndr400", "latency_s": 1e-6}}',
            b'{"base": "h100:64", "name": "ours", "engine": "slurm", "queue": "gpu"}',
            b'{"accelerator": "h100", "num_nodes": 4, "link_health": [{"ends": [2, 3], "delay_s": 0.03,'
            b' "jitter_s": 1e-3}, {"link_class": "inter_node", "bandwidth_bytes_per_s": 2.5e7},'
            b' {"ends": [0, 1], "is_dead": true}]}',
        ),
        is_json=True,
    ),
    Target(
        name="names",
        check=_name,
        seeds=(
            *(b"h100:64", b"a100:4x8", b"llama-3-8b", b"Meta-Llama/Llama-3.1-70B", b"megatron-core", b"ndr400"),
            b"cpu:2",
        ),
    ),
)
