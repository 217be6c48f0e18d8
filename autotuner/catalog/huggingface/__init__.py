"""Reads the shapes of a model from a Hugging Face ``config.json``.

``keys`` is typed access to the document, ``shapes`` what families share; each further module reads one kind of family,
and ``readers`` is the table of them. The keys and their defaults are those of transformers' configuration classes
(5.23.0, 2026-11); tests build a published model of every family with it and compare parameters.
"""

from autotuner.catalog.huggingface.readers import MODEL_TYPES, from_config

__all__ = ["MODEL_TYPES", "from_config"]
