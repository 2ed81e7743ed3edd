"""Arrow columns as librdkafka sees them: addresses and lengths, without a Python object per row."""

from __future__ import annotations

import ctypes

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.sinks.librdkafka import column_pointers, library


def seen(column: pa.Array) -> list[bytes | None]:
    addresses, lengths = column_pointers(column)
    return [ctypes.string_at(int(a), int(n)) if a else None for a, n in zip(addresses, lengths, strict=True)]


@settings(deadline=None)
@given(
    values=st.lists(st.none() | st.binary(max_size=20), max_size=30),
    kind=st.sampled_from([pa.binary(), pa.large_binary()]),
    first=st.integers(0, 5),
    count=st.integers(0, 30),
)
def test_every_slice_of_a_column_is_read_as_it_is(values: list[bytes | None], kind: pa.DataType, first: int, count: int) -> None:
    column = pa.array(values, kind).slice(min(first, len(values)), count)
    assert seen(column) == column.to_pylist()


def test_strings_are_bytes_and_other_types_are_refused() -> None:
    assert seen(pa.array(["ä", None], pa.string())) == ["ä".encode(), None]
    with pytest.raises(TypeError, match="binary or string"):
        column_pointers(pa.array([1, 2]))


def test_the_shipped_library_answers() -> None:
    assert library().rd_kafka_version() >= 0x02000000
