from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import cast

import pytest

from autotuner.launch.engines.engine import EngineRefused, EngineUnavailable
from autotuner.launch.engines.kubernetes.api import Missing, Stream
from autotuner.launch.engines.kubernetes.pod_log import PodLog

AGES_S = 30.0

LINES = [b"2026-11-22T12:00:00.%09dZ line %d\n" % (number, number) for number in range(6)]
PRINTED = b"".join(b"line %d\n" % number for number in range(6))


class Answer:
    """A log that goes as far as its lines, then ends or raises."""

    def __init__(self, lines: list[bytes], error: Exception | None = None) -> None:
        self._lines = lines
        self._error = error

    def __iter__(self) -> Iterator[bytes]:
        yield from self._lines
        if self._error is not None:
            raise self._error

    def __enter__(self) -> Answer:
        return self

    def __exit__(self, *exception: object) -> None:
        return None

    def close(self) -> None:
        return None


class Server:
    """Gives one answer after the other, the last of them for ever; the container has ended when that is the turn."""

    def __init__(self, *answers: Answer | Exception) -> None:
        self._answers = list(answers)
        self.num_asked = 0

    def follow(self) -> Stream:
        self.num_asked += 1
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return cast("Stream", answer)

    def is_over(self) -> bool:
        return len(self._answers) == 1


def whole(server: Server, last_words: Callable[[bytes], bytes] = lambda printed: b"") -> bytes:
    """All that is known once the container has ended."""
    log = PodLog(server.follow, server.is_over, last_words)
    log.wait(AGES_S)
    try:
        return log.read(0)
    finally:
        log.stop()


def test_what_was_printed_is_served_from_any_byte_on() -> None:
    log = PodLog(Server(Answer(LINES)).follow, lambda: True, lambda printed: b"")
    log.wait(AGES_S)
    assert log.read(0) == PRINTED
    assert log.read(7) == PRINTED[7:]
    assert log.read(10_000) == b""


@pytest.mark.parametrize("num_lines", range(6))
def test_no_line_is_lost_and_none_comes_twice_when_the_connection_breaks(num_lines: int) -> None:
    broken = Answer(LINES[:num_lines], EngineUnavailable("the connection broke"))
    assert whole(Server(broken, Answer(LINES))) == PRINTED


def test_a_line_that_was_torn_comes_again_whole() -> None:
    assert whole(Server(Answer([*LINES[:3], LINES[3][:20]]), Answer(LINES))) == PRINTED


def test_lines_whose_moments_are_out_of_order_are_neither_lost_nor_doubled() -> None:
    """Standard output and standard error are stamped by two threads."""
    swapped = [LINES[1], LINES[0], *LINES[2:]]
    log = whole(Server(Answer(swapped[:2], EngineUnavailable("broke")), Answer(swapped)))
    assert log == b"line 1\nline 0\n" + PRINTED[14:]


def test_equal_lines_of_the_same_nanosecond_are_both_kept() -> None:
    twice = [LINES[0], LINES[0]]
    assert whole(Server(Answer(twice[:1], EngineUnavailable("broke")), Answer(twice))) == b"line 0\nline 0\n"


def test_what_the_kubelet_says_of_the_log_itself_is_left_out() -> None:
    assert whole(Server(Answer([b"unable to retrieve container logs for containerd://17\n", *LINES]))) == PRINTED


def test_a_clean_end_is_believed_only_once_the_container_has_ended() -> None:
    server = Server(Answer(LINES[:2]), Answer(LINES[:4]), Answer(LINES))
    assert whole(server) == PRINTED
    assert server.num_asked == 3


@pytest.mark.parametrize("error", [EngineUnavailable("500"), EngineRefused("400: ContainerCreating")])
def test_a_log_that_is_not_to_be_had_yet_is_asked_for_again(error: Exception) -> None:
    assert whole(Server(error, error, Answer(LINES))) == PRINTED


def test_a_pod_that_is_gone_keeps_what_was_heard_of_it() -> None:
    assert whole(Server(Answer(LINES[:3]), Missing("404"))) == b"".join(LINES[n][31:] for n in range(3))


def test_last_words_of_others_stand_after_the_container_s_own() -> None:
    assert whole(Server(Answer(LINES)), lambda printed: b"killed after %d bytes\n" % len(printed)).endswith(
        b"line 5\nkilled after 42 bytes\n"
    )


def test_a_bug_in_one_answer_does_not_end_the_thread() -> None:
    assert whole(Server(RuntimeError("a bug"), Answer(LINES))) == PRINTED


def test_a_log_that_is_stopped_ends_at_once() -> None:
    opened, ended = threading.Event(), threading.Event()

    class Endless(Answer):
        def __iter__(self) -> Iterator[bytes]:
            opened.set()
            ended.wait(AGES_S)
            yield from ()

        def close(self) -> None:
            ended.set()

    log = PodLog(Server(Endless([])).follow, lambda: False, lambda printed: b"")
    opened.wait(AGES_S)
    log.stop()
    assert ended.is_set()
