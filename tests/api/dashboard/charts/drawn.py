"""What is in a picture, read as a browser would."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree as ET

from markupsafe import Markup

__all__ = ["each", "links", "number", "one", "texts", "words"]


def each(picture: Markup, class_: str) -> Iterator[ET.Element]:
    """Elements of that class, in the order in which they are painted."""
    for element in ET.fromstring(f"<all>{picture}</all>").iter():
        if set(class_.split()) <= set(element.get("class", "").split()):
            yield element


def one(picture: Markup, class_: str) -> ET.Element:
    """The only element of that class."""
    (found,) = each(picture, class_)
    return found


def number(element: ET.Element, attribute: str) -> float:
    """A place."""
    return float(element.attrib[attribute])


def words(picture: Markup) -> list[str]:
    """Texts, in order."""
    return [element.text or "" for element in ET.fromstring(f"<all>{picture}</all>").iter("text")]


def texts(picture: Markup) -> list[ET.Element]:
    """Elements of text, in order."""
    return list(ET.fromstring(f"<all>{picture}</all>").iter("text"))


def links(picture: Markup) -> list[ET.Element]:
    """Links, in order."""
    return list(ET.fromstring(f"<all>{picture}</all>").iter("a"))
