"""Pages of the Python API: a list of modules for each package, whose docstrings are read when the site is built."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from documentation.reference.markdown import head, table

ROOT = Path(__file__).resolve().parents[2]

_PACKAGES: Mapping[str, tuple[str, str]] = {
    "autotuner.training": ("Building blocks for trainers", "Building blocks for your own training loop on PyTorch."),
    "autotuner.costmodel": ("Cost model", "Predictions of the time and the memory of layouts."),
    "autotuner.core": ("Core values", "The frozen values that every other module talks about."),
}

_CORE = (
    *("layout", "option", "choices", "space", "stages", "placement", "model", "blocks", "workload", "cluster", "link"),
    *("network", "accelerator", "stack", "job", "requests", "prediction", "measurement", "sweep", "sweep_requests"),
    *("trial", "study", "objective", "run", "errors", "units"),
)
_MODULES = {"autotuner.core": [f"autotuner.core.{name}" for name in _CORE]}
"""Packages of which only some modules are documented, because a program needs no others."""

_DOORS = ("autotuner.door", "autotuner.remote", "autotuner.catalog.hardware", "autotuner.catalog.models")


def python_page() -> str:
    """Return the Markdown page of the modules that users' programs may import."""
    rows = [(f"[`{name}`]({page_of(name)}.md)", about) for name, (_, about) in _PACKAGES.items()]
    return "\n".join(
        [
            head("Python API", "The modules, classes and functions that your own programs may use.", "make docs"),
            "These packages have pages of their own:\n",
            table(("package", "it has"), rows),
            *map(_directive, _DOORS),
        ]
    )


def package_pages() -> dict[str, str]:
    """Return the Markdown page of each package, by the name of the page. It has one directive for each module."""
    return {page_of(name): _package_page(name, title, about) for name, (title, about) in _PACKAGES.items()}


def page_of(package: str) -> str:
    """Return the name of the page about a package."""
    return f"python-{package.rpartition('.')[2]}"


def _package_page(package: str, title: str, about: str) -> str:
    return "\n".join(
        [head(title, about, "make docs"), *map(_directive, _MODULES.get(package) or public_modules(package))]
    )


def public_modules(package: str) -> Iterator[str]:
    """Yield the names of all public modules in a package and in its subpackages, without ``__init__`` files."""
    folder = ROOT / package.replace(".", "/")
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if path.name != "__init__.py" and not any(part.startswith("_") for part in parts):
            yield ".".join(parts)


def _directive(module: str) -> str:
    return f"## `{module}` {{ #{module} }}\n\n::: {module}\n"
