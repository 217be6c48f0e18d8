"""What a recipe assigns is found without running it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from autotuner.export.megatron.assignments import assignments


def test_assignments_to_attributes_and_arguments_of_calls_are_found() -> None:
    text = "cfg.model.a = 4\ncfg.model.b: int = 5\ncfg.c = Config(d=False, e=['x', 'y'])\ncfg.f = None\ncfg.g = h(1)\n"
    values = assignments(text).values
    assert values["cfg.model.a"] == ("4",)
    assert values["cfg.model.b"] == ("5",)
    assert (values["d"], values["e"], values["cfg.f"]) == (("False",), ("x", "y"), ())
    assert values["cfg.g"] == ("h", "1")


def test_arguments_of_a_function_stand_for_their_defaults() -> None:
    text = "def recipe(tp: int = 2, *, cp: int = 4, pp=None):\n    return Strategy(tensor=tp, context=cp, pipeline=pp)"
    values = assignments(text).values
    assert (values["tensor"], values["context"], values["pipeline"]) == (("2",), ("4",), ())


def test_of_several_functions_that_which_pretrains_counts_with_what_it_calls() -> None:
    text = (
        "def helper():\n    x.a = 1\n    x.b = 1\n"
        "def sft():\n    x.a = 2\n    x.c = 2\n    x.d = 2\n    x.e = 2\n"
        "def pretrain():\n    helper()\n    x.a = 3\n"
    )
    found = assignments(text)
    assert found.values == {"x.a": ("3",), "x.b": ("1",)}
    assert (found.function, found.others) == ("pretrain", ("sft",))


def test_overrides_of_a_command_are_found() -> None:
    text = "nemo llm pretrain --factory llama3_8b a.b.c=2 'd.e=[x,y]' f.g=\"h\" \\\n +i.j=null"
    values = {"a.b.c": ("2",), "d.e": ("x", "y"), "f.g": ("h",), "i.j": ("null",)}
    assert assignments(text).values == values


@given(st.text(max_size=80) | st.text(alphabet="ab.=()[]'\"\n :,1", max_size=60))
def test_any_text_has_assignments_or_none(text: str) -> None:
    assert all(isinstance(words, tuple) for words in assignments(text).values.values())
