"""Megatron's words: its command line, and the configurations of Megatron-Bridge and NeMo, which name the same fields.

Each of ``degrees``, ``pipeline``, ``numerics`` and ``model`` writes and reads one part of a layout or a model, as
values by the names of Megatron's namespace; ``layout`` joins them, ``rules`` say what these cannot express, and
``command_line`` and ``recipes`` say the names in flags or as ``section.field=value``.
"""
