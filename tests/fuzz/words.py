"""Short texts that people write: cron expressions, layouts, networks, URLs, tokens."""

from __future__ import annotations

import itertools
import json

from autotuner.core import documents
from autotuner.core.access import check_name
from autotuner.core.codec import from_plain, to_plain
from autotuner.core.errors import InvalidInput
from autotuner.core.fault_trace import FaultTrace
from autotuner.core.layout import Layout, parse_words
from autotuner.core.lines import read_links, read_phases, written_links
from autotuner.core.sweep_requests import Adoption
from autotuner.core.text import inputs_of, to_document
from autotuner.search.upkeep.cron import Cron
from autotuner.service.authentication import read_token, token_text, without_tokens
from autotuner.service.networks import household, is_within, read_networks
from autotuner.service.posting import Refused, check_url, destination, origin
from autotuner.service.webhooks import check_secret
from tests.fuzz.target import Target, text_of

_SPRING = 1_774_000_000.0
"""A week before clocks are put forward in Europe."""


def _cron(data: bytes) -> None:
    """A due expression says so in words, and its times rise."""
    expression, _, zone = text_of(data).partition("\n")
    cron = Cron.read(expression, zone or "Europe/Berlin")
    times = list(itertools.islice(cron.due_times(after=_SPRING), 5))
    assert times == sorted(set(times))
    assert all(time > _SPRING for time in times)
    assert cron.in_words


def _layout(data: bytes) -> None:
    """What a layout is written as is read as that layout."""
    text = text_of(data)
    layout = from_plain(Layout, parse_words(text))
    assert layout == Layout.parse(text)
    assert Layout.parse(str(layout)) == layout


def _layout_text(data: bytes) -> None:
    text = text_of(data).replace(".json", "")  # files are for the tests of the command line
    documents.read(Adoption, to_document(inputs_of(Adoption), {"layout": text}))


def _networks(data: bytes) -> None:
    text = text_of(data)
    networks = read_networks(text, "AUTOTUNER_WEBHOOK_ALLOW")
    for address in (text, "10.0.0.1", "::ffff:10.0.0.1", "fe80::1%eth0", *map(str.strip, text.split(","))):
        is_within(address, networks)
        assert household(household(address)).split("/")[0] == household(address).split("/")[0]


def _url(data: bytes) -> None:
    """A URL that is taken leads where it says, and its origin tells nothing of what follows it."""
    url = text_of(data)
    try:
        check_url(url, ())
    finally:
        try:
            found = destination(url, read_networks("10.0.0.0/8", "ALLOW"), lambda host, port: ("93.184.216.34",))
            assert origin(url).startswith(("http://", "https://"))
            assert found.addresses == ("93.184.216.34",)
        except (Refused, InvalidInput):
            pass


def _token(data: bytes) -> None:
    """A token that is read is written as it was; and no secret is left in what is shown."""
    text = text_of(data)
    if found := read_token(text):
        assert token_text(*found) == text
        assert found[1] not in without_tokens(f"GET /{text}/x {text}")
    without_tokens(text)
    for check in (check_name, check_secret):
        try:
            check(text)
        except InvalidInput as error:
            str(error).encode()


def _trace(data: bytes) -> None:
    """A fault trace that is printed is read as it was, and its stretches are the whole run."""
    trace = FaultTrace.parse(text_of(data))
    again = FaultTrace.parse(str(trace), num_steps=trace.num_steps)
    assert str(again) == str(trace)
    assert [fault.step for fault in again.faults] == [fault.step for fault in trace.faults]
    stretches = trace.stretches()
    assert sum(stretch.num_steps for stretch in stretches) == trace.num_steps
    assert all(not health.is_healthy for stretch in stretches for health in stretch.links)
    assert from_plain(FaultTrace, to_plain(trace)) == trace


def _links(data: bytes) -> None:
    """What links are written as is read as those links."""
    links = read_links(text_of(data))
    assert read_links(written_links(links)) == links


def _phases(data: bytes) -> None:
    """What no phase is, is refused."""
    read_phases(text_of(data))


TARGETS = (
    Target(
        name="links",
        check=_links,
        seeds=(
            b"2_3; 0.06; 200mbit\ninter-node; dead",
            b"3_2;0|0_1;1e-6",
            b'[{"ends": [2, 3], "delay_s": 0.03, "jitter_s": 1e-3}, {"link_class": "intra_node", "is_dead": true}]',
            b"[" * 3000,
        ),
        words=(";", "_", "|", "mbit", "dead", "intra_node", "inter-node", "1e999", "nan", '"ends"', "[[", "0_0"),
    ),
    Target(
        name="phases",
        check=_phases,
        seeds=(
            b"warm-up: 5 %; batch 128\nmain: 95 %  # all else",
            b"long: 33.3 %; seq_len=131072|thin: 66.7 %; bandwidth 10gbit; precision bf16",
            b'[{"name": "slow", "token_share": 1, "link_health": [{"ends": [0, 1], "delay_s": 0.03}]}]',
            b"[" * 3000,
        ),
        words=(":", " %", ";", "|", "#", "batch", "seq_len", "bandwidth", "precision", "gbit", "1e999", '"name"', "[{"),
    ),
    Target(
        name="fault_trace",
        check=_trace,
        seeds=(
            b"7;2_3;0.06\n30;2_3;0",
            b"# of a night\n5; 0_1,3_2; 200mbit\n9;0_1;dead\n\n12;0_1,2_3;0",
            b"0;0_1;inf",
            b"3;0_1;1e-3\n3;0_1;9999999999999999.125kbit",
        ),
        words=(";", "_", ",", "mbit", "gbit", "dead", "inf", "1e999", "nan", "0_0", "999999999", "#"),
    ),
    Target(
        name="cron",
        check=_cron,
        seeds=(b"0 2 * * *", b"*/15 1-5 1,15 * mon-fri", b"30 2 29 2 *\nUTC", b"0 0 L * 5#2\nAsia/Tokyo", b"@daily"),
        words=("LW", "#", "/", "-", ",", "MON", "jan", "Europe/Berlin", "America/", "UTC", "*/", "59", "31 2 *"),
    ),
    Target(
        name="layouts",
        check=_layout,
        seeds=(
            b"fsdp8 tp4 pp2 1f1b mb1 sp recompute-full every2 flash bf16",
            b"dp8 tp8 pp16 1f1b mb1 flash bf16",
            b"zero16 ep8 pp4 interleaved v2 mb1 fp32-reduce cudnn fp8 delayed",
            b"fsdp8 mb1 reshard fp32-reduce cudnn fp8 delayed",
        ),
        words=("fsdp", "zero", "shardgrad", "tp2", "cp2", "ep4", "pp2", "v2", "sp", "zbv", "recompute-full", "fp8"),
    ),
    Target(
        name="layout_text",
        check=_layout_text,
        seeds=(b"fsdp8 tp4 mb1", json.dumps({"tensor_parallel_degree": 4, "precision": "bf16"}).encode(), b"{" * 3000),
        is_json=True,
    ),
    Target(
        name="networks",
        check=_networks,
        seeds=(b"10.1.0.0/16, 127.0.0.1", b"fd00::/8,::1", b"::ffff:10.0.0.0/104", b"0.0.0.0/0"),
        words=("/", "::", "::ffff:", "%", "255", "fe80"),
    ),
    Target(
        name="urls",
        check=_url,
        seeds=(
            b"https://hooks.example.com/services/T0/B0/x",
            b"http://10.0.0.1:8080/x?y#z",
            b"https://user:pass@host/",
            "https://bücher.example:443/ü".encode(),
            b"https://[::1]:8443/",
            b"https://0x7f.1/",
        ),
        words=("https://", "http://", "@", "[::ffff:127.0.0.1]", ":65536", "%00", "xn--", "\\", "。"),
    ),
    Target(
        name="tokens",
        check=_token,
        seeds=(
            b"at_abcdefghij_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
            b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            b"ann@example.com",
        ),
        words=("at_", "_", "whsec_", "=="),
    ),
)
