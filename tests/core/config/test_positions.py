"""The scanner finds the keys that tomli finds, and the lines they stand in."""

from typing import Any

import tomli
from hypothesis import given, settings
from hypothesis import strategies as st

from ike_core.config.positions import positions

DOCUMENT = '''# a comment = 1
title = "x = 1 # no comment"

[model]
path = """
[not.a.table]
key = "inside a string"
"""
"quoted.key".inner = 1   # comment with "quotes
freeze = [
  "a", # ] no end
  { key = [1, 2] },
]
  [model.lora]
  rank = 16
[data.train]
log = { steps = 10, nested = { "a b" = 'c' } }
[[things]]
name = 1
  [things.below]
  x = 1
[[things]]
name = 2
[things.below]
x = 2
'''


def test_every_key_has_the_line_it_is_written_in() -> None:
    assert positions(DOCUMENT) == {
        ("title",): 2,
        ("model",): 4,
        ("model", "path"): 5,
        ("model", "quoted.key"): 9,
        ("model", "quoted.key", "inner"): 9,
        ("model", "freeze"): 10,
        ("model", "lora"): 14,
        ("model", "lora", "rank"): 15,
        ("data",): 16,
        ("data", "train"): 16,
        ("data", "train", "log"): 17,
        ("data", "train", "log", "steps"): 17,
        ("data", "train", "log", "nested"): 17,
        ("data", "train", "log", "nested", "a b"): 17,
        ("things",): 18,  # an array of tables is one value
    }


def test_windows_line_ends_count_once() -> None:
    assert positions('a = """\r\n\r\n"""\r\nb = 1\r\n') == {("a",): 1, ("b",): 4}


# -- whatever tomli reads -----------------------------------------------------------------------------------------

_BLANK = st.sampled_from(["", " ", "\t", "  "])
_COMMENT = st.sampled_from(["", "# c", "# [x]", '# a = "', "#'''", '# """ ]'])
_BARE = st.from_regex(r"[A-Za-z0-9_-]{1,4}", fullmatch=True)
_TEXT = st.text(st.sampled_from("ab=[]{}#.,'\" "), max_size=6)


def _escape(text: str) -> str:
    return text.replace('"', '\\"')


_KEY_PART = st.one_of(
    _BARE,
    _TEXT.map(lambda text: f'"{_escape(text)}"'),
    _TEXT.map(lambda text: f"'{text.replace(chr(39), '')}'"),
)
_KEY = st.lists(_KEY_PART, min_size=1, max_size=3).flatmap(
    lambda parts: _BLANK.map(lambda blank: f"{blank}.{blank}".join(parts))
)
_STRINGS = st.one_of(
    _TEXT.map(lambda text: f'"{_escape(text)}"'),
    _TEXT.map(lambda text: f"'{text.replace(chr(39), '')}'"),
    _TEXT.map(lambda text: f'"""\n{_escape(text)}\nkey = 1\n"""'),
    _TEXT.map(lambda text: f"'''{text.replace(chr(39), '')}\n[x]'''"),
    st.sampled_from(['"""a"""""', "'''''''''", '""', "''", '"\\\\"', '"\\u0041"', '""""quoted" text"""']),
)
_SCALARS = st.one_of(
    st.sampled_from(["1", "-2.5e3", "true", "inf", "1979-05-27 07:32:00", "1979-05-27T07:32:00Z", "0x1F"]), _STRINGS
)


def _array(items: list[str], comment: str) -> str:
    return "[" + "".join(f"{item}, {comment}\n" for item in items) + "]"


def _inline(pairs: list[tuple[str, str]]) -> str:
    return "{ " + ", ".join(f"{key} = {value}" for key, value in pairs) + " }"


_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.builds(_array, st.lists(inner, max_size=3), _COMMENT),
        st.builds(_inline, st.lists(st.tuples(_KEY, inner), max_size=3)),
    ),
    max_leaves=6,
)
_PAIRS = st.builds(lambda key, value, blank, comment: f"{blank}{key}{blank}={blank}{value} {comment}", _KEY, _VALUES,
                   _BLANK, _COMMENT)  # fmt: skip
_HEADERS = st.builds(lambda key, blank: f"[{blank}{key}{blank}]", _KEY, _BLANK)
_ARRAY_HEADERS = st.builds(lambda key, blank: f"[[{blank}{key}{blank}]]", _KEY, _BLANK)
_LINES = st.one_of(_PAIRS, _PAIRS, _HEADERS, _ARRAY_HEADERS, _COMMENT, _BLANK)


@st.composite
def documents(draw: st.DrawFn) -> str:
    """Lines that tomli accepts one after the other."""
    text = ""
    for line in draw(st.lists(_LINES, max_size=12)):
        try:
            tomli.loads(f"{text}{line}\n")
        except tomli.TOMLDecodeError:
            continue
        text += f"{line}\n"
    return text


def _keys(tree: dict[str, Any], key: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    found: set[tuple[str, ...]] = set()
    for name, value in tree.items():
        found.add((*key, name))
        if isinstance(value, dict):
            found |= _keys(value, (*key, name))
    return found


@settings(max_examples=60, deadline=None)
@given(documents())
def test_the_scanner_sees_the_keys_that_tomli_sees(text: str) -> None:
    assert positions(text).keys() == _keys(tomli.loads(text))


@settings(max_examples=40, deadline=None)
@given(documents())
def test_lines_are_those_that_name_the_key(text: str) -> None:
    lines = text.split("\n")
    for key, line in positions(text).items():
        if key[-1].isalnum():
            assert key[-1] in lines[line - 1]
