"""Hugging Face: the configuration of ``accelerate launch`` and the arguments of the ``transformers`` Trainer."""
