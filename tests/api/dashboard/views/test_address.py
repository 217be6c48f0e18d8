from __future__ import annotations

from fastapi import Request

from api.dashboard.views.address import Address


def address(query: str) -> Address:
    return Address.of(Request({"type": "http", "query_string": query.encode(), "headers": []}))


def test_an_address_keeps_what_was_chosen_and_never_the_part_of_a_page() -> None:
    chosen = address("where=tp=4+pp>1&part=live&sort=-mfu&empty=")
    assert chosen.get("where") == "tp=4 pp>1"
    assert chosen.query == "?where=tp%3D4+pp%3E1&sort=-mfu"


def test_several_values_of_a_name_are_one_with_commas() -> None:
    assert address("columns=tp&columns=mfu").get("columns") == "tp,mfu"


def test_a_link_changes_some_of_it_and_leaves_out_what_is_empty() -> None:
    chosen = address("where=tp=4&sort=mfu&page=3")
    assert chosen.with_(sort="-mfu", page="") == "?where=tp%3D4&sort=-mfu"
    assert chosen.with_(where=None, sort="", page="") == "?"
    assert chosen.but("where", "page") == (("sort", "mfu"),)


def test_what_a_caller_wrote_is_quoted() -> None:
    assert '"' not in address("where=%22%3E%3Cscript%3E").with_(sort="mfu")
