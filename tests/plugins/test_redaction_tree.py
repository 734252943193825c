"""`redact_tree`: every leaf and key, types kept, unchanged parts the same objects."""

from __future__ import annotations

import collections
import enum
import json
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from checkrein.errors import ConfigError
from checkrein_plugins.redaction import Unredactable, redact, redact_tree

MAIL = "robin.vale@example.org"


class Point(NamedTuple):
    x: Any
    y: Any


@dataclass(frozen=True, slots=True)
class Frozen:
    who: Any
    number: int = 3


@dataclass
class Custom:
    who: str
    seen: list[str] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.seen.append("made")


class Model(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)
    who: str
    rows: tuple[str, ...] = ()


class Colour(enum.Enum):
    RED = "robin.vale@example.org"


class Level(enum.StrEnum):
    LOW = "robin.vale@example.org"


class Marked(str):
    __slots__ = ()


class Listing(list[Any]):
    note = "n"


class Refuses:
    def __copy__(self) -> Refuses:
        raise RuntimeError("no copies")


@dataclass
class Stubborn(Refuses):
    who: str


@pytest.mark.parametrize(
    ("value", "after"),
    [
        ({"to": MAIL}, {"to": "[EMAIL]"}),
        ({MAIL: 1}, {"[EMAIL]": 1}),
        ({(MAIL, 1): [MAIL]}, {("[EMAIL]", 1): ["[EMAIL]"]}),
        ([1, MAIL, None], [1, "[EMAIL]", None]),
        ((MAIL, True), ("[EMAIL]", True)),
        ({MAIL}, {"[EMAIL]"}),
        (frozenset({MAIL, "x"}), frozenset({"[EMAIL]", "x"})),
        (Point(MAIL, 2), Point("[EMAIL]", 2)),
        (Frozen(MAIL), Frozen("[EMAIL]")),
        (Model(who=MAIL, rows=(MAIL, "x")), Model(who="[EMAIL]", rows=("[EMAIL]", "x"))),
        (Model(who="x", more=MAIL), Model(who="x", more="[EMAIL]")),  # type: ignore[call-arg]  # extra="allow"
        (MAIL.encode(), b"[EMAIL]"),
        (bytearray(MAIL.encode()), bytearray(b"[EMAIL]")),
        (collections.deque([MAIL], 5), collections.deque(["[EMAIL]"], 5)),
        (collections.OrderedDict(a=MAIL), collections.OrderedDict(a="[EMAIL]")),
        (MappingProxyType({"a": MAIL}), {"a": "[EMAIL]"}),
        (Listing([MAIL]), ["[EMAIL]"]),
        (Marked(MAIL), "[EMAIL]"),
        ({"card": 4242424242424242, "n": 7}, {"card": "[CREDIT_CARD]", "n": 7}),
        ({"phone": 2125550147}, {"phone": "[PHONE]"}),
        ({"password": "Tr0ub4dor&3x"}, {"password": "[SECRET]"}),
    ],
)  # fmt: skip
def test_found_in_every_kind_of_value(value: Any, after: Any) -> None:
    before = repr(value)
    new = redact_tree(value)
    assert new == after
    if not isinstance(value, Marked):
        assert type(new) is type(value)
    assert repr(value) == before


def test_attributes_survive_a_rebuild() -> None:
    made = Custom(MAIL)
    new = redact_tree(made)
    assert (new.who, new.seen) == ("[EMAIL]", ["made"])
    assert new.seen is made.seen and made.who == MAIL
    assert redact_tree(Listing([MAIL])).note == "n"


@pytest.mark.parametrize("value", [Colour.RED, Level.LOW, object(), 3.5, 1 << 200, None, Custom])
def test_what_is_not_looked_into_stays_the_same_object(value: Any) -> None:
    assert redact_tree([value])[0] is value


def test_unchanged_parts_are_the_same_objects() -> None:
    clean = {"deep": [{"text": "nothing here"}, (1, 2)]}
    value = {"clean": clean, "dirty": [MAIL]}
    new = redact_tree(value)
    assert new["clean"] is clean
    assert redact_tree(clean) is clean


def test_keys_that_become_equal_are_numbered() -> None:
    new = redact_tree({"a@example.org": 1, "b@example.org": 2, "c@example.org": 3, "x": 4})
    assert new == {"[EMAIL]": 1, "[EMAIL]#2": 2, "[EMAIL]#3": 3, "x": 4}
    new = redact_tree({"[EMAIL]": 0, "a@example.org": 1})
    assert new == {"[EMAIL]": 0, "[EMAIL]#2": 1}
    new = redact_tree({"a@example.org": 1, "[EMAIL]": 0})
    assert sorted(new.values()) == [0, 1]


def test_no_finding_reaches_from_one_leaf_into_the_next() -> None:
    value = ["4242 4242", "4242 4242", {"call": "555-"}, "0147", "robin@", "example.org"]
    assert redact_tree(value) is value


def test_json_inside_strings_stays_json() -> None:
    value = {
        "arguments": json.dumps({"to": MAIL, "card": 4242424242424242}).replace("@", "\\u0040")
    }
    inner = json.loads(redact_tree(value)["arguments"])
    assert inner == {"to": "[EMAIL]", "card": "[CREDIT_CARD]"}


def test_cycles_and_depth_are_typed_errors() -> None:
    loop: list[Any] = [MAIL]
    loop.append([loop])
    with pytest.raises(Unredactable, match="contains itself"):
        redact_tree(loop)
    twin: dict[str, Any] = {}
    twin["a"] = twin["b"] = twin
    with pytest.raises(Unredactable, match="contains itself"):
        redact_tree(twin)
    deep: Any = "x"
    for _ in range(300):
        deep = [deep]
    with pytest.raises(Unredactable, match="deeper"):
        redact_tree(deep)


def test_a_shared_part_is_no_cycle() -> None:
    part = [MAIL]
    assert redact_tree([part, part, {"a": part}]) == [["[EMAIL]"], ["[EMAIL]"], {"a": ["[EMAIL]"]}]


def test_what_cannot_be_rebuilt_is_an_error_with_its_path() -> None:
    with pytest.raises(Unredactable) as caught:
        redact_tree({"row": [1, Stubborn(MAIL)]})
    assert caught.value.path == ".row[1]" and "robin" not in str(caught.value)
    clean = Stubborn("nobody")
    assert redact_tree(clean) is clean


def test_bytes_that_are_no_text_are_refused_unless_kept() -> None:
    with pytest.raises(Unredactable, match="UTF-8"):
        redact_tree({"data": b"\xff\xfe"})
    assert redact_tree([b"\xff\xfe", MAIL], binary="keep") == [b"\xff\xfe", "[EMAIL]"]


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ConfigError):
        redact_tree({}, ["emial"])
    with pytest.raises(ConfigError):
        redact_tree({}, binary="skip")


leaves = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=12),
    st.binary(max_size=4).filter(lambda raw: raw.isascii()), st.sampled_from([MAIL, "see " + MAIL]),
)  # fmt: skip
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=6) | st.just(MAIL) | st.integers(), inner, max_size=4),
        st.builds(Point, inner, inner),
        st.builds(Frozen, inner),
    ),
    max_leaves=20,
)


@settings(max_examples=300, deadline=None)
@given(trees)
def test_any_structure_keeps_its_shape_and_loses_its_values(value: Any) -> None:
    new = redact_tree(value)
    assert MAIL not in repr(new)
    assert type(new) is type(value)
    assert shape(new) == shape(value)
    if MAIL not in repr(value) and new == value:
        assert new is value


def shape(value: Any) -> Any:
    if isinstance(value, dict):
        return ("dict", [shape(item) for item in value.values()])
    if isinstance(value, Frozen):
        return ("frozen", shape(value.who))
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, [shape(item) for item in value])
    return None


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(max_size=30) | st.sampled_from([MAIL, "4242424242424242"]), max_size=6))
def test_a_list_of_texts_is_the_list_of_their_redactions(texts: list[str]) -> None:
    plain = [text.replace("\0", "").replace("\1", "") for text in texts]
    assert redact_tree(plain) == [redact(text) for text in plain]
