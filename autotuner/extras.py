"""The extras of the package: parts that not everybody needs, such as the service, and what each of them installs."""

from __future__ import annotations

import re
from importlib.metadata import requires

_PACKAGE = "parallelism-autotuner"


def installing(extra: str) -> str:
    """Return the command that installs an extra.

    Example:
        >>> installing("notebook")
        "pip install 'parallelism-autotuner[notebook]'"
    """
    return f"pip install '{_PACKAGE}[{extra}]'"


def missing_extra(error: ModuleNotFoundError) -> str | None:
    """Return the name of the extra that installs the module that was not found; None if no extra does.

    Example:
        >>> missing_extra(ModuleNotFoundError(name="sqlalchemy.orm"))
        'service'
    """
    module = (error.name or "").partition(".")[0].lower()
    for requirement in requires(_PACKAGE) or ():
        found = re.match(r"([\w.-]+).*extra == ['\"](\w+)['\"]", requirement)
        if found and found[2] != "dev" and re.split("[-_.]", found[1].lower())[0] == re.split("_", module)[0]:
            return found[2]
    return None
