"""Writes docs/models.md: ``python -m tests.unit.catalog.huggingface.families``, a few seconds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from autotuner.catalog.huggingface import MODEL_TYPES, from_config
from autotuner.report.caveats import caveats_in_words
from autotuner.search.caveats import approximations
from tests.unit.catalog.huggingface.published import Published, published
from tests.unit.catalog.huggingface.transformers_models import num_parameters, version

__all__ = ["PAGE", "Row", "page_rows"]

PAGE = Path(__file__).parents[4] / "docs" / "models.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table of parameters."""

    model_type: str
    name: str
    total: int
    active: int
    by_transformers: int

    def __str__(self) -> str:
        counts = " | ".join(f"{count:,}" for count in (self.total, self.active, self.by_transformers))
        return f"| `{self.model_type}` | {self.name} | {counts} |"


def page_rows(text: str) -> list[Row]:
    """The lines of the page's table of parameters."""
    lines = [[cell.strip() for cell in line.strip("| ").split("|")] for line in text.splitlines() if line[:3] == "| `"]
    counted = [cells for cells in lines if len(cells) == 5]
    return [_row(*cells) for cells in counted]


def _row(model_type: str, name: str, *counts: str) -> Row:
    total, active, by_transformers = (int(count.replace(",", "")) for count in counts)
    return Row(model_type=model_type.strip("`"), name=name, total=total, active=active, by_transformers=by_transformers)


def main() -> None:
    """Count the parameters of every model both ways and write the page."""
    PAGE.write_text(_page(), encoding="utf-8")


_TEXT = """# Models that are read

Written by `python -m tests.unit.catalog.huggingface.families`; not to be edited.

`--model` and `PUT /api/v1/models/{name}` take a Hugging Face `config.json` of these values of `model_type`:
TYPES.

Of a document with a `text_config` the language model is read. Older and newer spellings of keys are both read
(`num_local_experts`, `num_experts`, `n_routed_experts`); rotary frequencies, number formats and quantization say
nothing of shapes. An unknown type is refused with the nearest that is known.

## Parameters
One published model of each type at least, and as many parameters as transformers VERSION gives it, built from the same
configuration on the meta device: NUM_MODELS models of NUM_TYPES types, of which DIFFERING differ. Tied tables count
once, biases that balance experts count, too; active are those that act on one token.

| type | model | parameters | active | by transformers |
| --- | --- | --- | --- | --- |
ROWS

## What is priced as something else
An answer says these sentences where they are true of its model. Windows of attention are priced as such.

| said | of |
| --- | --- |
SENTENCES
"""


def _page() -> str:
    models = sorted(published(), key=lambda model: (MODEL_TYPES.index(model.model_type), model.name))
    rows = [_counted(model) for model in models]
    parts = {
        "TYPES": ", ".join(f"`{name}`" for name in MODEL_TYPES),
        "VERSION": version(),
        "NUM_MODELS": str(len(rows)),
        "NUM_TYPES": str(len({row.model_type for row in rows})),
        "DIFFERING": ", ".join(row.name for row in rows if row.total != row.by_transformers) or "none",
        "ROWS": "\n".join(map(str, rows)),
        "SENTENCES": "\n".join(f"| {sentence} | {', '.join(names)} |" for sentence, names in _said(models).items()),
    }
    text = _TEXT
    for name, part in parts.items():
        text = text.replace(name, part, 1)
    return text


def _counted(model: Published) -> Row:
    spec = from_config(model.config, model.name)
    return Row(
        model_type=model.model_type,
        name=model.name,
        total=spec.num_parameters,
        active=spec.num_active_parameters,
        by_transformers=num_parameters(model),
    )


def _said(models: list[Published]) -> dict[str, list[str]]:
    """Sentences with the models that they are said of."""
    said: dict[str, list[str]] = {}
    for model in models:
        for sentence in caveats_in_words(approximations(from_config(model.config, model.name))):
            said.setdefault(sentence, []).append(model.name)
    return said


if __name__ == "__main__":
    main()
