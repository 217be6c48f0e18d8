"""An extension of Griffe, which reads docstrings for the pages of the Python API."""

from __future__ import annotations

import re
from typing import Any

import griffe


class Examples(griffe.Extension):
    """An extension of Griffe that treats a docstring section ``Example:`` like ``Examples:``, as a Python session."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rename a section ``Example:`` in the docstring of an object to ``Examples:``."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
