from __future__ import annotations

from api.dashboard.views.layouts import chips, degrees, shared_chips
from autotuner.domain.layouts.words import layout_of


def test_degrees_are_those_of_the_columns() -> None:
    layout = layout_of("dp2 fsdp4 tp8 pp2 cp2 1f1b mb4")
    assert {degree.letters: degree.value for degree in degrees(layout)} == {
        "tp": 8,
        "pp": 2,
        "dp": 8,
        "cp": 2,
        "ep": 1,
        "mb": 4,
    }


def test_every_other_choice_is_a_chip_sharding_and_schedule_first() -> None:
    layout = layout_of("zero8 pp2 v2 interleaved_1f1b mb1 recompute-full every2 sp tp2")
    assert chips(layout) == (
        "ZeRO-1",
        "interleaved ×2",
        "sequence parallel",
        "recompute full every 2 layers",
        "flash attention",
        "bf16",
    )


def test_stages_with_fewer_layers_are_said_shortly() -> None:
    said = chips(layout_of("pp4 1f1b lessfirst1 lesslast2 mb1"))
    assert said[:3] == ("1F1B", "first stage −1", "last stage −2")


def test_shards_with_replicas_say_both() -> None:
    assert chips(layout_of("dp2 fsdp4 mb1"))[0] == "HSDP 2×4"


def test_what_all_share_is_said_once() -> None:
    layouts = [layout_of("fsdp8 mb1"), layout_of("fsdp8 mb2 recompute-full")]
    shared = shared_chips(layouts)
    assert shared == ("FSDP", "flash attention", "bf16")
    assert chips(layouts[1], shared) == ("recompute full",)
    assert shared_chips(layouts[:1]) == ()
