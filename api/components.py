"""Components of the OpenAPI document: what several requests may be written in short is described once, by a name.

Code generators make a class of each component; of objects that lie inside others many make nothing.
"""

from __future__ import annotations

from typing import Any

_IN_SHORT = " in short"
"""How titles of such objects end."""

_MAX_BYTES = 2**63 - 1


def with_components(document: dict[str, Any]) -> dict[str, Any]:
    """The document with every object in short as a component, and whole numbers as bounds of whole numbers."""
    named: dict[str, Any] = {}
    document = _moved(document, named)
    document["components"]["schemas"] |= named
    return document


def _moved(node: Any, named: dict[str, Any]) -> Any:
    if isinstance(node, list):
        return [_moved(item, named) for item in node]
    if not isinstance(node, dict):
        return node
    node = {key: _moved(value, named) for key, value in node.items()}
    if node.get("type") == "integer":
        node |= {
            key: max(-_MAX_BYTES, min(int(node[key]), _MAX_BYTES)) for key in ("minimum", "maximum") if key in node
        }
    title = node.get("title")
    if not isinstance(title, str) or not title.endswith(_IN_SHORT) or "properties" not in node:
        return node
    name = title.removesuffix(_IN_SHORT) + "InShort"
    assert named.setdefault(name, node) == node, f"two objects are called {title}"
    return {"$ref": f"#/components/schemas/{name}"}
