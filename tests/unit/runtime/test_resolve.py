"""The function of an operator is found, or the sentence says what is missing."""

from __future__ import annotations

import pytest

from spark_jobs.operators import wordcount
from spark_jobs.runtime.plan import resolve


def test_a_function_is_found() -> None:
    assert resolve("spark_jobs.operators.wordcount:count_words") is wordcount.count_words


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        (
            "spark_jobs.operators.wordcount:count_wrods",
            "spark_jobs.operators.wordcount has no count_wrods; did you mean count_words?",
        ),
        ("spark_jobs.operators.wordcount:zzzzzzzz", "has no zzzzzzzz, and nothing that is called like it"),
        ("spark_jobs.operators.wrodcount:count_words", "put its module on PYTHONPATH"),
    ],
)
def test_what_is_missing_is_named(reference: str, said: str) -> None:
    with pytest.raises(RuntimeError, match="operator function") as told:
        resolve(reference)
    assert said in str(told.value)
