"""Persons, places, organisations and addresses: models of language behind the same interface."""

from __future__ import annotations

import subprocess
import sys
from types import MappingProxyType
from typing import Any

import pytest

from checkrein.call import Call, Outcome, ToolInfo
from checkrein.errors import ConfigError
from checkrein.verdicts import Deny, Replace, Rewrite, Unchecked
from checkrein_plugins.redaction import Redaction

TEXT = "Ada Lovelace of Acme GmbH in Berlin wrote from ada@example.org"


class Entity:
    def __init__(self, text: str, name: str, label: str) -> None:
        self.start_char = text.index(name)
        self.end_char = self.start_char + len(name)
        self.label_ = label


NAMES = {"Ada Lovelace": "PERSON", "Acme GmbH": "ORG", "Berlin": "GPE", "1843": "DATE"}


class Document:
    """What a spaCy pipeline returns, as far as it is looked at."""

    def __init__(self, text: str) -> None:
        self.ents = [Entity(text, name, label) for name, label in NAMES.items() if name in text]


def after(plugin: Redaction, text: str) -> str:
    verdict = plugin.pre_call(
        Call("c", "s", "tool", "note", MappingProxyType({"text": text}), ToolInfo("note"))
    )
    return str(verdict.call.arguments["text"]) if isinstance(verdict, Rewrite) else text


def test_a_pipeline_finds_its_categories_beside_the_others() -> None:
    assert after(Redaction(nlp=Document), TEXT) == (
        "[PERSON] of [ORGANISATION] in [LOCATION] wrote from [EMAIL]"
    )
    some = Redaction(["person", "email"], nlp=Document)
    assert after(some, TEXT) == "[PERSON] of Acme GmbH in Berlin wrote from [EMAIL]"


def test_actions_directions_and_views_hold_for_them() -> None:
    plugin = Redaction(nlp=Document, arguments={"person": "block"}, results={"person": "pseudonym"})
    call = Call("c", "s", "tool", "note", {"text": TEXT}, ToolInfo("note"))
    denied = plugin.pre_call(call)
    assert isinstance(denied, Deny)
    assert denied.reason == "person in text"
    assert plugin.post_call(call, Outcome("done", ["Ada Lovelace"])) == Replace(["<PERSON_1>"])
    assert plugin.view(call, {"a": ("Berlin", 1)}, "span") == {"a": ("[LOCATION]", 1)}


def test_offsets_are_those_of_the_text_as_it_is() -> None:
    text = "\u200bＡda says: A\u200bda Lovelace, caf\u00e9, 日本 and Berlin"
    assert after(Redaction(nlp=Document), text) == (
        "\u200bＡda says: [PERSON], caf\u00e9, 日本 and [LOCATION]"
    )


def test_streams_give_what_whole_texts_give() -> None:
    plugin = Redaction(nlp=Document)
    text = f"{TEXT}\nBerlin again\nand Ada Lovelace"
    whole = after(plugin, text)
    for cut in range(len(text)):
        stream = plugin.open_stream(Call("c", "s", "model", "m", {}, ToolInfo("m")), "text")
        assert stream is not None
        parts = [stream.feed(text[:cut]), stream.feed(text[cut:]), stream.flush()]
        assert "".join(map(str, parts)) == whole


@pytest.mark.parametrize(
    "text",
    [
        "221B Baker Street, London NW1 6XE", "350 Fifth Avenue, New York, NY 10118",
        "1600 Pennsylvania Ave, Washington, DC 20500-0003", "12 N. Main St, Apt 4B",
        "10 Downing Street", "Hauptstraße 12, 10115 Berlin", "Am Bahnhofsplatz 3a",
        "12 bis rue de la Paix, 75002 Paris", "8 avenue Victor Hugo", "P.O. Box 1234",
    ],
)  # fmt: skip
def test_postal_addresses_need_no_model(text: str) -> None:
    plugin = Redaction(["address"], nlp=lambda text: Document(""))
    found = after(plugin, f"send it to {text}, please")
    assert "[ADDRESS]" in found
    assert not any(char.isdigit() for char in found)


@pytest.mark.parametrize(
    "text", ["turn left at the street", "12 road works", "the 3 drives", "version 12 Way of life"]
)
def test_what_is_no_address_stays(text: str) -> None:
    assert after(Redaction(["address"], nlp=lambda text: Document("")), text) == text


def test_a_model_that_fails_is_not_nothing_found() -> None:
    def broken(text: str) -> Any:
        raise RuntimeError(f"cannot read {text}")

    call = Call("c", "s", "tool", "note", {"text": "Ada Lovelace"}, ToolInfo("note"))
    denied = Redaction(nlp=broken).pre_call(call)
    assert isinstance(denied, Deny)
    assert denied.rule == "checker_unavailable"
    assert "Ada" not in denied.reason
    passed = Redaction(nlp={"model": broken, "on_failure": "allow"}).pre_call(call)
    assert passed == (None, Unchecked("nlp"))


@pytest.mark.parametrize(
    ("nlp", "message"),
    [
        ("spacy", "name the model"),
        ("stanza:en", "none of spacy"),
        (7, "nlp.model"),
        ({"engine": "spacy", "modell": "x"}, "nlp.modell"),
        ({"model": Document, "timeout": 0}, "nlp.timeout"),
        ({"model": Document, "score": 2}, "nlp.score"),
        ({"model": Document, "language": 1}, "nlp.language"),
        ({"model": Document, "on_failure": "x"}, "nlp.on_failure"),
    ],
)
def test_bad_settings_are_refused_with_their_key(nlp: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Redaction(nlp=nlp)


def test_the_categories_need_the_setting() -> None:
    with pytest.raises(ConfigError, match="some need the setting nlp"):
        Redaction(["person"])
    with pytest.raises(ConfigError, match=r"custom\.person: is a built-in"):
        Redaction(nlp=Document, custom={"person": {"words": ["Ada"]}})


@pytest.mark.parametrize("engine", ["spacy:en_core_web_sm", "presidio"])
def test_a_missing_extra_names_what_to_install(engine: str, monkeypatch: Any) -> None:
    for name in ("spacy", "presidio_analyzer"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match=r'pip install "checkrein\[nlp\]"'):
        Redaction(nlp=engine)


def test_nothing_is_imported_unless_it_is_used(child: Any) -> None:
    code = (
        "import sys; from checkrein_plugins.redaction import Redaction, redact; redact('x'); "
        "Redaction(); names = ('spacy', 'presidio_analyzer', 'checkrein_plugins.redaction.nlp'); "
        "print([name for name in names if name in sys.modules])"
    )
    out, _ = child(code).communicate(timeout=60)
    assert out == "[]\n"


def test_a_real_spacy_pipeline() -> None:
    spacy = pytest.importorskip("spacy")
    pipeline = spacy.blank("en")
    pipeline.add_pipe("entity_ruler").add_patterns(
        [{"label": label, "pattern": name} for name, label in NAMES.items()]
    )
    assert after(Redaction(nlp=pipeline), f"é日 {TEXT} in 1843") == (
        "é日 [PERSON] of [ORGANISATION] in [LOCATION] wrote from [EMAIL] in 1843"
    )
    with pytest.raises(ConfigError, match="python -m spacy download en_no_such_model"):
        Redaction(nlp="spacy:en_no_such_model")


def test_a_real_presidio_analyzer() -> None:
    presidio = pytest.importorskip("presidio_analyzer")
    spacy = pytest.importorskip("spacy")
    engines = pytest.importorskip("presidio_analyzer.nlp_engine")

    class Blank(engines.SpacyNlpEngine):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.nlp = {"en": spacy.blank("en")}

    registry = presidio.RecognizerRegistry(supported_languages=["en"])
    registry.recognizers = []
    for label, name in (("PERSON", "Ada Lovelace"), ("LOCATION", "Berlin"), ("CITY", "Acme")):
        pattern = presidio.Pattern(label, name, 0.9)
        registry.add_recognizer(
            presidio.PatternRecognizer(supported_entity=label, patterns=[pattern])
        )
    analyzer = presidio.AnalyzerEngine(
        registry=registry, nlp_engine=Blank(), supported_languages=["en"]
    )
    assert after(Redaction(nlp=analyzer), TEXT) == (
        "[PERSON] of Acme GmbH in [LOCATION] wrote from [EMAIL]"
    )


def test_the_command_takes_a_model() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "checkrein", "redact", "-", "--nlp", "stanza:en"],
        input="x", capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2
    assert "none of spacy:MODEL, presidio" in done.stderr
