"""Reads the shapes of a model from a Hugging Face ``config.json``.

``config`` reads the document with type checks, and has the fields that families share. ``dense`` and ``sparse`` are
tables of families, and ``families`` finds the family of a document. The keys and their defaults are those of
transformers' configuration classes (5.23.0, 2026-11); tests build a published model of every family with transformers
and compare the number of parameters.
"""

from autotuner.catalog.huggingface.families import MODEL_TYPES, from_config

__all__ = ["MODEL_TYPES", "from_config"]
