"""Utilities that can be evaluated over one row, and those that cannot."""

from __future__ import annotations

import pytest
from spillway.topology.expression import refusal

COLUMNS = ("fare", "tip", "tags", "trip", "over", "key", "value", "timestamp")


@pytest.mark.parametrize(
    "expression",
    [
        "fare",
        "FARE * 1.5e3 - tip / 2L",
        "case when fare > 10 and tip is not null then 1 else 0 end",
        "cast(fare as decimal(10, 2))",
        "fare::double",
        "exists(tags, x -> x = 'vip (not closed')",
        "aggregate(tags, 0, (acc, x) -> acc + length(x))",
        "trip.distance_km",
        "tags[0] like '%a'",
        "`fare` + over",
        "extract(hour from timestamp)",
        "timestamp + interval 5 minutes > timestamp '2020-01-01'",
        "get_json_object(cast(value as string), '$.x')",
    ],
)
def test_good_utilities(expression: str) -> None:
    assert refusal(expression, COLUMNS) is None


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("", "is empty"),
        ("fair", "there is no column fair (did you mean fare?)"),
        ("`fair`", "there is no column fair (did you mean fare?)"),
        ("fare + zzz", "there is no column zzz"),
        ("(fare", "a '(' is not closed"),
        ("tags[0", "a '[' is not closed"),
        ("fare)", "a ')' closes nothing"),
        ("(fare]", "a ']' closes nothing"),
        ("fare; drop", "'; drop' is not understood"),
        ("'open", '"\'open" is not understood'),
        ("Avg(fare)", "Avg() looks at other rows, and a utility is computed from one row"),
        ("rank() over (order by fare)", "`over` looks at other rows, and a utility is computed from one row"),
        ("(select 1)", "`select` looks at other rows, and a utility is computed from one row"),
        ("explode(tags)", "explode() makes several rows of one"),
        ("fare * rand()", "rand() gives a row another utility at every replay"),
        ("java_method('java.lang.System', 'exit', 1)", "java_method() calls into the driver's Java"),
    ],
)
def test_bad_utilities(expression: str, message: str) -> None:
    assert refusal(expression, COLUMNS) == message
