"""Which port a service gets."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from spillway.embedded.config import HOST
from spillway.embedded.errors import EmbeddedError
from spillway.embedded.ports import FREE_RANGE, PortBook, is_free


@pytest.fixture
def taken() -> Iterator[int]:
    """A port on which this process listens."""
    with socket.socket() as s:
        s.bind((HOST, 0))
        s.listen()
        yield s.getsockname()[1]


@pytest.fixture
def book(tmp_path: Path) -> Iterator[PortBook]:
    book = PortBook(tmp_path)
    yield book
    book.release()


def free_port() -> int:
    return next(p for p in reversed(FREE_RANGE) if is_free(p))


def test_the_preferred_port_is_taken_when_it_is_free(book: PortBook) -> None:
    port = free_port()
    assert book.choose("kafka", port, environ={}) == port


def test_the_port_of_the_last_run_comes_before_the_preferred_one(book: PortBook) -> None:
    last, preferred = free_port(), free_port() - 50
    assert book.choose("kafka", preferred, last, environ={}) == last


def test_a_taken_port_is_replaced_by_a_free_one(book: PortBook, taken: int) -> None:
    port = book.choose("kafka", taken, environ={})
    assert port != taken
    assert port in FREE_RANGE
    assert is_free(port)


def test_a_listener_on_every_address_counts_as_taken() -> None:
    with socket.socket() as s:
        s.bind(("0.0.0.0", 0))
        s.listen()
        assert not is_free(s.getsockname()[1])


def test_a_demanded_port_that_is_taken_is_refused_with_its_owner(book: PortBook, taken: int) -> None:
    with pytest.raises(EmbeddedError) as caught:
        book.choose("kafka", 9092, environ={"SPILLWAY_PORT_KAFKA": str(taken)})
    assert f"Port {taken} for kafka (SPILLWAY_PORT_KAFKA) is in use by process {os.getpid()}" in str(caught.value)


@pytest.mark.parametrize("value", ["kafka", "0", "65536", "-1", "9092.5"])
def test_a_demanded_port_that_is_none_is_refused(book: PortBook, value: str) -> None:
    with pytest.raises(EmbeddedError, match=r"is not a port: give a number from 1 to 65535\."):
        book.choose("kafka", 9092, environ={"SPILLWAY_PORT_KAFKA": value})


def test_two_runs_that_start_at_the_same_time_never_choose_the_same_port(tmp_path: Path) -> None:
    one, other, port = PortBook(tmp_path), PortBook(tmp_path), free_port()
    assert one.choose("kafka", port, environ={}) == port
    second = other.choose("kafka", port, environ={})
    assert second != port
    one.release()
    third = PortBook(tmp_path)
    assert third.choose("kafka", port, environ={}) == port
    other.release()
    third.release()


def test_one_run_never_gives_the_same_port_twice(book: PortBook) -> None:
    port = free_port()
    assert book.choose("kafka", port, environ={}) != book.choose("postgres", port, environ={})
