from __future__ import annotations

import pytest
from spillway.inject.lines import BadLine, Event, message


@pytest.mark.parametrize(
    ("line", "key", "expected"),
    [
        (b"not json", None, {"value": b"not json"}),
        (b'{"zone": 7}', "zone", {"key": b"7", "value": b'{"zone": 7}'}),
        (b'{"zone": "east"}', "zone", {"key": b"east", "value": b'{"zone": "east"}'}),
        (b'{"zone": true}', "zone", {"key": b"true", "value": b'{"zone": true}'}),
    ],
)
def test_a_line_is_an_event_as_it_stands(line: bytes, key: str | None, expected: dict[str, bytes]) -> None:
    assert message(line, 1, key) == expected


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"{", "line 3 is not a JSON object, so it has no field zone to be its key."),
        (b"[7]", "line 3 is not a JSON object, so it has no field zone to be its key."),
        (b'{"tip": 1, "fare": 2}', "line 3 has no field zone to be its key: it has tip, fare."),
        (b'{"zone": null}', "line 3 has no value in the field zone to be its key."),
        (b"{}", "line 3 has no field zone to be its key: it has none."),
        (b"\xff", "line 3 is not a JSON object, so it has no field zone to be its key."),
    ],
)
def test_a_line_without_its_key_is_explained(line: bytes, says: str) -> None:
    with pytest.raises(BadLine) as error:
        message(line, 3, "zone")
    assert str(error.value) == says


def test_an_event_is_one_line() -> None:
    assert str(Event(1, 0, 0, b"7", b'{"a":\n1}')) == '7\t{"a":\\n1}'
    assert str(Event(1, 0, 0, None, None)) == "–\t–"
