"""Examples of models and clusters that a caller describes."""

from __future__ import annotations

from typing import Any

from api.examples.catalog import cluster
from api.schemas import ClusterList
from autotuner.core.wire import to_dict


def model_bodies() -> dict[str, Any]:
    """Bodies of ``PUT /models/{name}``."""
    config = {
        "model_type": "llama",
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "vocab_size": 128256,
        "tie_word_embeddings": False,
    }
    changed = {"base": "llama-3-8b", "name": "my-llama", "num_layers": 16}
    return {"our fields": small_model(), "of the catalog, changed": changed, "Hugging Face config.json": config}


def cluster_bodies() -> dict[str, Any]:
    """Bodies of ``PUT /clusters/{name}``."""
    named = {"name": "mine", "accelerator": "h100", "num_nodes": 4, "inter_node_link": "ndr200"}
    changed = named | {"accelerator": {"base": "h100", "memory_bytes": 64_000_000_000}, "oversubscription": 2.0}
    return {"by names": named, "by names, changed": changed, "whole": to_dict(cluster())}


def cluster_list() -> ClusterList:
    """A list of clusters."""
    return ClusterList(items=(cluster(),))


def small_model() -> dict[str, Any]:
    """A model that a machine without accelerators trains."""
    sizes = {"num_layers": 8, "hidden_size": 256, "num_heads": 8, "num_kv_heads": 4, "head_dim": 32, "ffn_size": 704}
    return {"name": "my-llama", **sizes, "vocab_size": 4096}
