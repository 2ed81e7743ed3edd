"""A light check of an SQL expression that needs no Spark, for the `utility` of an edge.

It knows tokens, the columns there are, and the functions that cannot work; what passes here can still be refused by Spark
when the driver starts, but the mistakes people make (a column misspelled, a bracket left open, an aggregate) are found while
the file is checked.
"""

from __future__ import annotations

import re
from difflib import get_close_matches

_TOKEN = re.compile(
    r"\s*(?:(?P<string>'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\")|(?P<quoted>`(?:[^`]|``)+`)"
    r"|(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?:BD|[LSYDF])?(?![A-Za-z_0-9]))|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<mark>->|<=>|<=|>=|<>|!=|==|\|\||::|<<|>>>|>>|[-+*/%<>=!&|^~(),.\[\]:]))",
    re.IGNORECASE,
)


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_WORDS = _set(
    "all and any array as asc at between binary bigint boolean both byte case cast char current_date current_time "
    "current_timestamp day days date decimal desc div double else end escape false float following for from hour hours ilike in "
    "int integer interval is leading like long map microsecond microseconds millisecond milliseconds minute minutes month "
    "months not null numeric or real regexp rlike second seconds short smallint some string struct then timestamp timestamp_ltz "
    "timestamp_ntz tinyint to trailing true unknown varchar week weeks when year years zone"
)
_RANDOM = _set("rand random randn randstr uniform uuid shuffle monotonically_increasing_id spark_partition_id")
_AGGREGATES = _set(
    "any_value approx_count_distinct approx_percentile array_agg avg bool_and bool_or collect_list collect_set corr count "
    "count_if every first first_value kurtosis last last_value listagg max max_by mean median min min_by mode percentile "
    "percentile_approx skewness std stddev stddev_pop stddev_samp string_agg sum try_avg try_sum var_pop var_samp variance"
)
_ROWS = _set("explode explode_outer inline inline_outer posexplode posexplode_outer stack")
_REFLECTION = _set("java_method reflect try_reflect")


def refusal(expression: str, columns: tuple[str, ...]) -> str | None:
    """One clause that says why the expression cannot be evaluated over one row with these columns; None when nothing is wrong.

    >>> refusal("coalesce(fare, 0) / 100", ("fare", "key"))
    >>> refusal("fair / 100", ("fare", "key"))
    'there is no column fair (did you mean fare?)'
    """
    try:
        tokens = _tokens(expression)
    except ValueError as error:
        return str(error)
    if not tokens:
        return "is empty"
    return _unbalanced(tokens) or _bad_call(tokens) or _unknown(tokens, columns)


def _tokens(text: str) -> list[tuple[str, str]]:
    """(kind, token) in order."""
    found, position = [], 0
    while text[position:].strip():
        match = _TOKEN.match(text, position)
        if match is None or match.lastgroup is None:
            raise ValueError(f"{text[position:].strip()[:20]!r} is not understood")
        found.append((match.lastgroup, match[match.lastgroup]))
        position = match.end()
    return found


def _unbalanced(tokens: list[tuple[str, str]]) -> str | None:
    closes, opened = {")": "(", "]": "["}, list[str]()
    for _, token in (t for t in tokens if t[0] == "mark"):
        if token in "([":
            opened.append(token)
        elif token in closes and (not opened or opened.pop() != closes[token]):
            return f"a {token!r} closes nothing"
    return f"a {opened[-1]!r} is not closed" if opened else None


def _bad_call(tokens: list[tuple[str, str]]) -> str | None:
    for (kind, token), after in zip(tokens, [*tokens[1:], ("", "")], strict=True):
        word = token.lower()
        if kind == "name" and (word == "select" or (word == "over" and after[1] == "(")):
            return f"`{token}` looks at other rows, and a utility is computed from one row"
        if kind != "name" or after[1] != "(":
            continue
        if word in _RANDOM:
            return f"{token}() gives a row another utility at every replay"
        if word in _AGGREGATES:
            return f"{token}() looks at other rows, and a utility is computed from one row"
        if word in _ROWS:
            return f"{token}() makes several rows of one"
        if word in _REFLECTION:
            return f"{token}() calls into the driver's Java"
    return None


def _unknown(tokens: list[tuple[str, str]], columns: tuple[str, ...]) -> str | None:
    known = {c.lower() for c in columns} | _lambda_names(tokens)
    padded = [("", ""), *tokens, ("", "")]
    for before, (kind, token), after in zip(padded, padded[1:], padded[2:], strict=False):
        name = token.strip("`").replace("``", "`") if kind == "quoted" else token
        if kind not in ("name", "quoted") or before[1] == "." or name.lower() in known:
            continue
        if kind == "name" and (name.lower() in _WORDS or after[1] == "(" or after[0] == "string"):
            continue
        close = get_close_matches(name, columns, n=1, cutoff=0.6)
        return f"there is no column {name}" + (f" (did you mean {close[0]}?)" if close else "")
    return None


def _lambda_names(tokens: list[tuple[str, str]]) -> set[str]:
    """The names in front of every `->`: `x -> …` or `(a, b) -> …`."""
    names = set[str]()
    for number, (_, token) in enumerate(tokens):
        if token != "->" or number == 0:
            continue
        at = number - 1
        if tokens[at][1] == ")":
            while at >= 0 and tokens[at][1] != "(":
                names |= {tokens[at][1].lower()} if tokens[at][0] == "name" else set()
                at -= 1
        else:
            names.add(tokens[at][1].lower())
    return names
