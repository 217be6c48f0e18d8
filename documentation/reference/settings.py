"""The page of the service's settings: environment variables with their defaults."""

from __future__ import annotations

from pathlib import Path

from autotuner.service.settings import Settings
from documentation.reference.markdown import head, table

_INTRODUCTION = """\
The defaults need no server and no set-up. Commands also read `AUTOTUNER_SERVER`, the address of the service that they
call, and `AUTOTUNER_TOKEN`, the token that they show.
"""


def settings_page() -> str:
    """Return the Markdown page of the service's settings."""
    rows = []
    for name, field in Settings.model_fields.items():
        default = field.default
        shown = "none" if default in (None, "") else str(getattr(default, "value", default)).lower()
        is_text = isinstance(default, (str, Path)) and default
        rows.append(
            (f"`AUTOTUNER_{name.upper()}`", f"`{default}`" if is_text else f"`{shown}`", field.description or "")
        )
    return "\n".join(
        [
            head("Settings", "The environment variables of the service and of workers."),
            _INTRODUCTION,
            table(("variable", "default", "meaning"), rows),
        ]
    )
