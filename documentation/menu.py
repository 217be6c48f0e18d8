"""The menu of the site: its sections, and the order of the reference pages."""

SECTIONS = {
    "tutorials": "Tutorials",
    "how-to": "How-to guides",
    "reference": "Reference",
    "explanation": "Explanation",
    "decisions": "Decisions",
}
"""Folders of docs/ in the order of the menu. A page in another folder is in no menu, which makes a strict build
fail."""

REFERENCE = (
    *("index", "commands", "exit-codes", "settings", "registrations", "layouts", "rest", "rest-objects", "events"),
    *("python", "python-training", "python-costmodel", "python-core", "descriptions", "models", "model-types"),
    *("accelerators", "networks", "stacks", "exports", "compatibility", "recipes", "accuracy"),
)
"""Pages of the reference. The last four and ``model-types`` are written by commands of their own, which take
minutes."""

WIDE = (
    *("layouts", "settings", "descriptions", "models", "model-types", "accelerators"),
    *("exports", "compatibility", "recipes"),
)
"""Reference pages with wide tables, which use the space of the list of headings."""
