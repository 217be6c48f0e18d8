"""The menu of the site: its sections, and the order of the pages of the reference."""

SECTIONS = {
    "tutorials": "Tutorials",
    "how-to": "How-to guides",
    "reference": "Reference",
    "explanation": "Explanation",
    "decisions": "Decisions",
}
"""Folders of docs/ in the order of the menu. A page elsewhere is in no menu, which fails a strict build."""

REFERENCE = (
    *("index", "commands", "exit-codes", "settings", "registrations", "layouts", "rest", "rest-objects", "events"),
    *("python", "python-training", "python-costmodel", "python-core", "descriptions", "models", "model-types"),
    *("accelerators", "networks", "stacks", "exports", "compatibility", "recipes", "accuracy"),
)
"""Pages of the reference. The last four and ``model-types`` have commands of their own, which take minutes."""

WIDE = (
    *("layouts", "settings", "descriptions", "models", "model-types", "accelerators"),
    *("exports", "compatibility", "recipes"),
)
"""Pages of the reference whose tables take the place of the list of headings."""
