"""The extras of the package: parts that not everybody needs, such as the service, and what each of them installs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, metadata, requires, version

_PACKAGE = "parallelism-autotuner"


def installing(extra: str) -> str:
    """Return the command that installs an extra (optional dependencies of the package).

    Example:
        >>> installing("notebook")
        "pip install 'parallelism-autotuner[notebook]'"
    """
    return f"pip install '{_PACKAGE}[{extra}]'"


def extras() -> Sequence[str]:
    """Return the names of the extras (groups of optional dependencies) for users; ``dev`` is for developers.

    Example:
        >>> extras()[:2]
        ['service', 'trials']
    """
    return [name for name in metadata(_PACKAGE).get_all("Provides-Extra") or () if name != "dev"]


def not_installed(extra: str) -> Sequence[str]:
    """Return the packages of an extra (a group of optional dependencies) that are not installed."""
    return [package for package, of in _packages() if of == extra and not _is_installed(package)]


def missing_extra(error: ModuleNotFoundError) -> str | None:
    """Return the name of the extra (optional dependencies) that installs a missing module; None if no extra does.

    Example:
        >>> missing_extra(ModuleNotFoundError(name="sqlalchemy.orm"))
        'service'
    """
    module = (error.name or "").partition(".")[0]
    return next((extra for package, extra in _packages() if _first_word(package) == _first_word(module)), None)


def _packages() -> Iterator[tuple[str, str]]:
    """Yield each package that an extra installs, with the name of the extra."""
    for requirement in requires(_PACKAGE) or ():
        found = re.match(r"([\w.-]+).*extra == ['\"](\w+)['\"]", requirement)
        if found and found[2] != "dev":
            yield found[1], found[2]


def _first_word(name: str) -> str:
    return re.split("[-_.]", name.lower())[0]


def _is_installed(package: str) -> bool:
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True
