"""Megatron's words: its command line, and the configurations of Megatron-Bridge and NeMo, which name the same fields.

``layout``, ``pipeline`` and ``model`` write and read the parts of a layout or a model as values by the names of
Megatron's namespace; ``rules`` say what these cannot express, and ``command_line`` and ``recipes`` say the names in
flags or as ``section.field=value``.
"""
