"""Megatron's words: its command line, and the configurations of Megatron-Bridge and NeMo, which name the same fields.

Rooms: ``reading`` is what all readers share; ``degrees``, ``sharding``, ``pipeline``, ``recompute``, ``numerics`` and
``shapes`` each write and read one part of a layout or a model, as values by the names of Megatron's namespace;
``rules`` say what these cannot express; ``command_line`` and ``overrides`` say the names in flags or as
``section.field=value``.
"""
