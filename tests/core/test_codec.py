"""The codec gives back what it was given, value and type, or refuses with the place."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import datetime as dt
import enum
import io
import math
import pathlib
import subprocess
import sys
import threading
import uuid
from decimal import Decimal
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple, NewType, TypedDict, TypeVar
from zoneinfo import ZoneInfo

import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkrein.codec import (
    annotation_classes,
    canonical,
    decode,
    decode_arguments,
    describe,
    digest,
    dumps,
    encode,
    encode_arguments,
    loads,
)
from checkrein.errors import Undecodable, Unencodable


class Color(enum.Enum):
    RED = 1
    GREEN = "g"
    CRIMSON = 1  # noqa: PIE796 - an alias


class Level(enum.IntEnum):
    LOW = 1


class Word(enum.StrEnum):
    HELLO = "hello"


class Right(enum.Flag):
    READ = 1
    WRITE = 2


class Point(NamedTuple):
    x: int
    y: Any


@dataclasses.dataclass
class Address:
    street: str
    tags: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Fixed:
    when: dt.date
    inner: Address | None = None


@dataclasses.dataclass
class Counted:
    value: int
    seen: int = dataclasses.field(init=False, default=0)
    secret: str = dataclasses.field(default="s3cret", repr=False)

    def __post_init__(self) -> None:
        self.seen += 1
        self.extra = [self.value]


class Item(pydantic.BaseModel):
    name: str
    price: Decimal = Decimal("1.50")
    when: dt.datetime | None = None
    token: str = pydantic.Field(default="t0ken", repr=False)
    _note: list[int] = pydantic.PrivateAttr(default_factory=list)


class Loose(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    items: list[Item] = []


CLASSES = {
    f"{kind.__module__}:{kind.__qualname__}": kind
    for kind in (Color, Level, Word, Right, Point, Address, Fixed, Counted, Item, Loose)
}


def through(value: Any) -> Any:
    return decode(loads(dumps(encode(value))), CLASSES)


def same(left: Any, right: Any) -> bool:
    """Equal in value and in type, all the way down; NaN is the same as NaN."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return repr(left) == repr(right)
    if isinstance(left, complex):
        return same(left.real, right.real) and same(left.imag, right.imag)
    if isinstance(left, dict):
        return (
            len(left) == len(right)
            and all(same(a, b) for a, b in zip(left, right, strict=True))
            and all(same(a, b) for a, b in zip(left.values(), right.values(), strict=True))
        )
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, (set, frozenset)):
        rest = list(right)
        for one in left:
            match = next((n for n, other in enumerate(rest) if same(one, other)), None)
            if match is None:
                return False
            del rest[match]
        return not rest
    if isinstance(left, (dt.datetime, dt.time)):
        return (
            left.replace(tzinfo=None) == right.replace(tzinfo=None)
            and left.fold == right.fold
            and repr(left.tzinfo) == repr(right.tzinfo)
        )
    if isinstance(left, Address):
        return same(vars(left), vars(right))
    if isinstance(left, Decimal):
        return left.as_tuple() == right.as_tuple()
    return bool(left == right)


ZONES = st.one_of(
    st.none(),
    st.sampled_from([ZoneInfo("Europe/Berlin"), ZoneInfo("UTC"), dt.UTC]),
    st.timedeltas(dt.timedelta(hours=-23), dt.timedelta(hours=23)).map(dt.timezone),
    st.builds(dt.timezone, st.just(dt.timedelta(hours=2)), st.text(max_size=4)),
)
TEXT = st.text(st.characters(), max_size=8) | st.sampled_from(
    ["$cr", "v", "\ud83d\ude00", "\udc80"]
)
HASHABLE = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.integers(10**400, 10**401),
        st.floats(),
        TEXT,
        st.binary(max_size=8),
        st.complex_numbers(),
        st.decimals().filter(lambda number: not number.is_snan()),
        st.uuids(),
        st.dates(),
        st.datetimes(timezones=ZONES),
        st.times(),
        st.timedeltas(),
        st.sampled_from([*Color, *Level, *Word, Right.READ | Right.WRITE, Right(0)]),
        st.sampled_from([pathlib.Path("/a/b"), pathlib.PureWindowsPath("c:\\x"), range(1, 9, 3)]),
        st.builds(Fixed, st.dates()),
    ),
    lambda inner: (
        st.tuples(inner, inner)
        | st.frozensets(inner, max_size=3)
        | st.builds(Point, st.integers(), inner)
    ),
    max_leaves=4,
)
VALUES = st.recursive(
    HASHABLE,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(TEXT, inner, max_size=4),
        st.dictionaries(HASHABLE, inner, max_size=3),
        st.dictionaries(HASHABLE, inner, max_size=3).map(collections.OrderedDict),
        st.sets(HASHABLE, max_size=3),
        st.binary(max_size=4).map(bytearray),
        st.fixed_dictionaries({"$cr": st.sampled_from(["tuple", "bytes", "nope"]), "v": inner}),
        st.builds(Address, TEXT, st.tuples(inner)),
    ),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(VALUES)
def test_whatever_can_be_encoded_comes_back_the_same(value):
    tree = encode(value)
    assert same(decode(tree, CLASSES), value)
    assert same(through(value), value)
    assert dumps(tree).encode()


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(JSON)
def test_every_tree_even_a_forged_one_decodes_or_is_refused_with_a_typed_error(tree):
    with contextlib.suppress(Undecodable):
        decode(tree, CLASSES)
    with contextlib.suppress(Undecodable):
        decode_arguments(tree, CLASSES, {})


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.integers()))
def test_equal_values_have_equal_digests(value):
    backwards = dict(reversed(value.items()))
    assert digest(b"k", encode(value)) == digest(b"k", encode(backwards))
    pairs = {(key, 1): item for key, item in value.items()}
    again = dict(reversed(pairs.items()))
    assert canonical(encode(pairs)) == canonical(encode(again))


def test_containers_are_copied_in_both_directions():
    inner = [1]
    tree = encode({"a": inner})
    inner.append(2)
    assert tree == {"a": [1]}
    first, second = decode(tree), decode(tree)
    first["a"].append(3)
    assert second == {"a": [1]}
    assert tree == {"a": [1]}


def test_plain_data_is_its_own_tree():
    value = {"a": 1, "b": [True, None, -0.0, "ü"], "c": {}}
    assert encode(value) == value
    assert dumps(encode(value)) == '{"a":1,"b":[true,null,-0.0,"ü"],"c":{}}'


@pytest.mark.parametrize(
    "value",
    [
        dt.datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
        dt.datetime(2024, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1), "home")),
        dt.time(1, 2, 3, 4, tzinfo=dt.UTC, fold=1),
        Decimal("1E+40"),
        Decimal("-0.00"),
        Decimal("sNaN12"),
        {1: "a", False: "b"},
        {None: 1, (1, 2): 2, Level.LOW: 3},
        {Word.HELLO: 1},
        pathlib.PurePosixPath("a/\udcff"),
        10**5000,
        [math.nan, math.inf, -math.inf],
        Level.LOW,
        Word.HELLO,
        Right.READ | Right.WRITE,
        uuid.UUID(int=7),
        {"$cr": {"$cr": "tuple", "v": [1]}},
        "\ud83d\ude00",
    ],
    ids=lambda value: type(value).__name__,
)
def test_awkward_values_come_back_exactly(value):
    assert same(through(value), value)


def test_an_alias_of_an_enum_is_its_member():
    assert through(Color.CRIMSON) is Color.RED


def test_a_dataclass_gets_its_state_back_without_running_its_code():
    value = Counted(3)
    value.seen = 7
    back = through(value)
    assert (back.seen, back.extra, back.secret) == (7, [3], "s3cret")
    slotted = Fixed(dt.date(2024, 1, 2), Address("a", ("x",)))
    assert through(slotted) == slotted


def test_a_pydantic_model_gets_its_whole_state_back():
    item = Item.model_validate_json('{"name": "n", "when": "2024-01-01T00:00:00+02:00"}')
    item._note.append(4)
    value = Loose(items=[item], other=(1, 2))
    back = through(value)
    assert back == value
    assert back.model_fields_set == {"items", "other"}
    assert back.model_extra == {"other": (1, 2)}
    assert back.items[0]._note == [4]
    assert type(back.items[0].when.tzinfo) is type(item.when.tzinfo)


class Tagged(dict):
    pass


class Big(int):
    pass


class Odd(tuple):
    __slots__ = ()


class Zone(dt.tzinfo):
    def utcoffset(self, when):
        return dt.timedelta(0)


class Faulty(ValueError):
    pass


@dataclasses.dataclass
class Stateful(dict):
    x: int = 1


@pytest.mark.parametrize(
    "value",
    [
        object(),
        Tagged(),
        Big(3),
        Odd(),
        collections.defaultdict(list),
        collections.deque(),
        io.StringIO(),
        threading.Lock(),
        Faulty("x"),
        dt.datetime(2024, 1, 1, tzinfo=Zone()),
        Stateful(),
        memoryview(b"x"),
        (n for n in ()),
        Address,
        len,
        MappingProxyType({}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_would_come_back_changed_is_refused_with_its_place(value):
    with pytest.raises(Unencodable) as caught:
        encode({"order": [1, {"lines": (0, value)}]})
    assert caught.value.path == "order[1].lines[1]"
    assert isinstance(caught.value, TypeError)


def test_a_value_that_looks_like_a_known_type_by_name_only_is_refused():
    impostor = type("Decimal", (), {"__module__": "decimal", "__str__": lambda self: "1"})
    with pytest.raises(Unencodable):
        encode(impostor())


class NoHash(type):
    def __eq__(cls, other):
        return True

    __hash__ = None


class Hashless(metaclass=NoHash):
    pass


@pytest.mark.parametrize("value", [object.__new__(Item), Hashless()], ids=["half", "hashless"])
def test_what_breaks_while_it_is_read_is_refused_as_well(value):
    for attempt in (encode, encode_arguments, lambda value: encode_arguments(value, ("y",))):
        with pytest.raises(Unencodable):
            attempt({"x": value})
    assert dumps(describe({"x": value, "y": 1})).endswith('"y":1}')


def test_messages_name_the_place_and_no_data():
    with pytest.raises(Unencodable) as caught:
        encode({"mails": {"ada@example.com": object()}}, "customer")
    assert caught.value.path == "customer.mails{key 0}"
    assert "ada" not in str(caught.value)
    assert "opaque" in str(caught.value)


def test_loops_and_deep_nesting_are_refused():
    loop: dict[str, Any] = {"a": []}
    loop["a"].append(loop)
    with pytest.raises(Unencodable, match="contains itself") as caught:
        encode(loop)
    assert caught.value.path == "a[0]"

    knot = Address("s")
    knot.tags = (knot,)
    with pytest.raises(Unencodable, match="contains itself"):
        encode(knot)

    deep: list[Any] = []
    for _ in range(199):
        deep = [deep]
    assert through(deep) == deep
    with pytest.raises(Unencodable, match="200 levels"):
        encode([deep])
    with pytest.raises(Unencodable):
        encode({"x": [deep]})


def test_a_text_that_is_too_deep_is_a_typed_error():
    with pytest.raises(Undecodable):
        decode(loads("[" * 100_000 + "]" * 100_000))


@pytest.mark.parametrize("text", ["", "{", "NaN", '{"a": Infinity}', "[1,]"])
def test_a_text_that_is_not_json_is_a_typed_error(text):
    with pytest.raises(Undecodable):
        loads(text)


@pytest.mark.parametrize(
    "value",
    [{"a": {"b": [math.nan]}}, {"a": {"b": [-math.inf]}}, {"a": {"b": ["\ud800"]}}],
)
def test_digests_refuse_what_has_no_agreed_form(value):
    with pytest.raises(Unencodable) as caught:
        canonical(encode(value))
    assert caught.value.path == "a.b[0]"
    # Text that only looks like such a tag is plain data.
    assert canonical(encode({"a": '{"$cr":"float"'}))


def test_raw_numbers_that_json_lacks_survive_the_text():
    assert repr(decode(loads(dumps({"a": [math.nan, math.inf]})))) == "{'a': [nan, inf]}"


def test_a_digest_depends_on_key_and_value_and_on_no_order():
    one = digest(b"a", encode({"x": 1, "y": {3, 1, 2}}))
    assert one == digest(b"a", encode({"y": {2, 3, 1}, "x": 1}))
    assert len({one, digest(b"b", encode({"x": 1, "y": {1, 2, 3}})), digest(b"a", {"x": 1})}) == 3


def test_the_digest_of_a_set_is_the_same_in_every_process():
    code = (
        "from checkrein.codec import *;"
        "print(digest(b'k', encode({'s': {'a', 'b', ('c', 1), None}})), end='')"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in "123"
    }
    assert len(seen) == 1


def test_opaque_arguments_are_passed_by_reference_and_in_no_tree():
    connection = threading.Lock()
    tree = encode_arguments({"a": (1,), "connection": connection}, opaque=("connection",))
    assert tree["connection"] == {"$cr": "opaque", "type": "_thread:lock"}
    back = decode_arguments(loads(dumps(tree)), {}, {"connection": connection})
    assert back == {"a": (1,), "connection": connection}
    with pytest.raises(Undecodable) as caught:
        decode_arguments(tree, {}, {})
    assert caught.value.path == "connection"


def test_arguments_are_refused_by_parameter_name():
    for opaque in ((), ("other",)):
        with pytest.raises(Unencodable) as caught:
            encode_arguments({"first": 1, "payment": {"card": object()}}, opaque)
        assert caught.value.path == "payment.card"
        for bad in ({"$cr": 1}, {1: 2}):
            with pytest.raises(Unencodable):
                encode_arguments(bad, opaque)
    assert encode_arguments(MappingProxyType({"a": 1})) == {"a": 1}


def test_arguments_with_odd_names_and_values_come_back():
    value = {"a\ud800": "\ud800", "kwargs": {"$cr": 1}}
    assert decode_arguments(loads(dumps(encode_arguments(value))), None, {}) == value


def test_only_classes_that_were_named_are_rebuilt():
    tree = encode({"where": Address("a")})
    with pytest.raises(Undecodable, match="no annotation") as caught:
        decode(tree)
    assert caught.value.path == "where"
    # A name that now stands for another kind of class is refused, too.
    with pytest.raises(Undecodable):
        decode(tree, {f"{__name__}:Address": Color})
    with pytest.raises(Undecodable, match="member"):
        decode({"$cr": "enum", "c": f"{__name__}:Color", "v": "BLUE"}, CLASSES)


Identifier = NewType("Identifier", Address)
Bounded = TypeVar("Bounded", bound=Item)


class Request(TypedDict):
    color: Color


@dataclasses.dataclass
class Tree:
    left: Tree | None
    point: dict[str, list[Point]]


def names(found: dict[str, type]) -> set[str]:
    assert all(key == f"{kind.__module__}:{kind.__qualname__}" for key, kind in found.items())
    return {kind.__name__ for kind in found.values()}


def test_annotations_name_their_classes_however_deep():
    def tool(
        a: list[Address] | None,
        b: Annotated[dict[str, Loose], "Level"],
        c: Literal[Right.READ, "Word"],
        *args: Request,
        **kwargs: Tree,
    ) -> int: ...

    assert names(annotation_classes(tool)) == {
        "Address", "Loose", "Item", "Right", "Color", "Tree", "Point",
    }  # fmt: skip
    assert names(annotation_classes({"x": Identifier, "y": list[Bounded]})) == {"Address", "Item"}


def test_annotations_of_everything_callable_and_of_local_classes():
    @dataclasses.dataclass
    class Local:
        x: Level

    def tool(a: Local, b: Missing) -> Fixed:  # noqa: F821 - an annotation that cannot be resolved
        return Local  # the closure is where the name can be found

    class Service:
        def __init__(self, color: Color) -> None: ...

        def method(self, item: Item) -> None: ...

        def __call__(self, point: Point) -> None: ...

    import functools

    assert names(annotation_classes(tool)) == {"Local", "Level", "Fixed", "Address"}
    assert names(annotation_classes(functools.partial(tool, 1))) >= {"Local"}
    assert names(annotation_classes(Service)) == {"Color"}
    assert names(annotation_classes(Service(Color.RED).method)) == {"Item"}
    assert names(annotation_classes(Service(Color.RED))) == {"Point"}
    assert annotation_classes(len) == {}


def test_the_codec_loads_nothing_heavy():
    code = (
        "import sys, checkrein.codec as c; c.annotation_classes({'a': int}); c.encode({'a': (1,)});"
        "heavy = {'pydantic', 'pydantic_core', 'asyncio', 'sqlite3', 'inspect'};"
        "print(heavy & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "{'inspect'}"  # dataclasses loads it


class Loud:
    def __repr__(self):
        raise AssertionError("called")

    __str__ = __repr__
    __getattribute__ = __repr__


def test_a_view_is_readable_and_calls_nothing_of_an_object():
    assert describe(
        {
            "who": Loud(),
            "data": b"12345",
            "when": dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
            "zone": dt.datetime(2024, 1, 1, tzinfo=Zone()),
            "color": Color.RED,
            "level": Level.LOW,
            "price": Decimal("1.50"),
            "point": Point(1, (2,)),
            "item": Counted(3),
            "model": Item(name="n"),
            "sub": Tagged(a=Big(3)),
            1: math.nan,
            "1": 10**100,
        }
    ) == {
        "who": "<Loud>",
        "data": "<bytes 5>",
        "when": "2024-01-01T00:00:00+00:00",
        "zone": "2024-01-01T00:00:00 <Zone>",
        "color": "Color.RED",
        "level": "Level.LOW",
        "price": "1.50",
        "point": {"x": 1, "y": [2]},
        "item": {"value": 3, "seen": 1, "secret": "<hidden>", "extra": [3]},
        "model": {"name": "n", "price": "1.50", "when": None, "token": "<hidden>"},
        "sub": {"a": 3},
        "1": "nan",
        "1'": "<int of 333 bits>",
    }


def test_a_view_is_bounded():
    loop: list[Any] = []
    loop.append(loop)
    wide = {str(n): "x" * 50 for n in range(100_000)}
    for value in (loop, wide, "y" * 10**6, list(range(10**6)), [["z" * 3000]] * 50):
        assert len(dumps(describe(value))) < 12_000
    assert describe("abcdef", limit=3) == "abc... [3 more]"
    assert describe(["abc", "d", "e"], limit=5) == ["abc", "... 2 more"]


@settings(max_examples=150, deadline=None)
@given(VALUES, st.integers(0, 200))
def test_every_view_is_a_tree_that_can_be_written(value, limit):
    view = describe(value, limit)
    text = dumps(view)
    assert '"$cr":"str"' not in text
    assert loads(text) == view
