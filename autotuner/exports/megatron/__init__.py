"""Megatron: its command line, and the recipes of Megatron-Bridge and NeMo, which have the same fields.

``layout``, ``pipeline`` and ``model`` write and read the parts of a layout or a model, by the names in Megatron's
namespace. ``rules`` list what these names cannot express. ``command_line`` spells the names as flags, and ``recipes``
as ``section.field=value``.
"""
