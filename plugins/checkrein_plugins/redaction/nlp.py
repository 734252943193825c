"""Persons, places, organisations and postal addresses: categories that need a model of language.

The models are spaCy's or Presidio's (extra `nlp`), loaded when a plugin asks for them. Each is one
finder among the others: what holds for categories of one's own holds for these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from checkrein.errors import ConfigError
from checkrein_plugins.redaction.detector import LINE
from checkrein_plugins.redaction.finders import Find, Finder, matching
from checkrein_plugins.redaction.linear import matcher

NLP_CATEGORIES = ("person", "location", "organisation", "address")
LABELS = {
    "PERSON": "person", "PER": "person",
    "LOCATION": "location", "LOC": "location", "GPE": "location", "FAC": "location",
    "ORGANIZATION": "organisation", "ORGANISATION": "organisation", "ORG": "organisation",
    "ADDRESS": "address", "STREET_ADDRESS": "address", "STREET": "address",
}  # fmt: skip
"""What models call their findings. What is not named here is not used."""
_KEYS = ("engine", "model", "language", "score", "timeout", "on_failure")
_INSTALL = 'pip install "checkrein[nlp]"'

_NAME = r"\p{Lu}[\p{L}'.-]{0,30}"
_TYPES = (
    r"(?:Street|St|Avenue|Ave|Road|Rd|Boulevard|Blvd|Lane|Ln|Drive|Dr|Court|Ct|Square|Sq|Place|Pl"
    r"|Way|Terrace|Close|Crescent|Parkway|Pkwy|Highway|Hwy|Circle|Cir|Row|Mews|Gardens)\b\.?"
)
_TOWN = r"(?:,? (?:" + _NAME + r" ?){1,3})"
_ENGLISH = (
    r"\b\d{1,5}[A-Za-z]?,? (?:[NSEW]\.? )?(?:" + _NAME + r" ){1,4}" + _TYPES
    + r"(?:,? (?:Apt|Suite|Ste|Unit|Flat|#)\.? ?\w{1,6})?"
    + r"(?:" + _TOWN + r",? [A-Z]{2},? \d{5}(?:-\d{4})?"
    + r"|" + _TOWN + r"?,? [A-Z]{1,2}\d[A-Z\d]? ?\d[A-Z]{2}\b)?"
)  # fmt: skip
_GERMAN = (
    r"\b[\p{L}-]{2,30}(?:stra(?:ß|ss)e|str\.|weg|platz|allee|gasse|damm|ufer) \d{1,4} ?[a-z]?\b"
    r"(?:,? \d{4,5} \p{Lu}[\p{L}-]{1,30})?"
)
_FRENCH = (
    r"\b\d{1,4}(?: bis| ter)?,? (?:rue|avenue|boulevard|place|chemin|allée|impasse|quai)"
    r" (?:de la |de l'|de |du |des |d')?(?:\p{Lu}[\p{L}'-]{1,30} ?){1,4}"
    r"(?:, ?\d{5} \p{Lu}[\p{L}-]{1,30})?"
)
ADDRESSES = (_ENGLISH, _GERMAN, _FRENCH, r"(?i:\bP\.? ?O\.? Box )\d{1,6}\b")
"""Postal addresses as they are written in English, German and French: street and number, and the
town behind them."""


def finders(setting: Any, wanted: frozenset[str]) -> list[Finder]:
    """Read `nlp`, load its model, and return the finders for the categories that are wanted.

    `"spacy:MODEL"`, `"presidio"`, a table of `_KEYS`, or the loaded object itself: a spaCy
    pipeline, or a Presidio analyzer.

    Raises:
        ConfigError: names the key; a package or a model that is missing, and how to install it.
    """
    table = _table(setting)
    timeout, failure = table.get("timeout"), table.get("on_failure", "deny")
    if timeout is not None and not (type(timeout) in (int, float) and timeout > 0):
        raise ConfigError("nlp.timeout: give seconds, more than 0")
    if failure not in ("deny", "allow"):
        raise ConfigError(f"nlp.on_failure: give deny or allow, not {failure!r}")
    score = table.get("score", 0.5)
    if type(score) not in (int, float) or not 0 <= score <= 1:
        raise ConfigError("nlp.score: give a number from 0 to 1")
    language = table.get("language", "en")
    if not isinstance(language, str):
        raise ConfigError("nlp.language: give a code such as en")
    find = _model(table, wanted, language, float(score))
    found = [Finder("nlp", find, LINE, timeout, failure == "allow")]
    if "address" in wanted:
        found += [
            Finder("address", matching(matcher(form.encode(), lines=True, utf8=True), "address"))
            for form in ADDRESSES
        ]
    return found


def _table(setting: Any) -> Mapping[str, Any]:
    if isinstance(setting, str):
        engine, _, model = setting.partition(":")
        return {"engine": engine, "model": model} if model else {"engine": engine}
    if isinstance(setting, Mapping):
        for key in setting:
            if key not in _KEYS:
                raise ConfigError(f"nlp.{key}: unknown key; known are {', '.join(_KEYS)}")
        return setting
    return {"model": setting}


def _model(table: Mapping[str, Any], wanted: frozenset[str], language: str, score: float) -> Find:
    model, engine = table.get("model"), table.get("engine")
    if model is not None and not isinstance(model, str):
        if callable(getattr(model, "analyze", None)):
            return _presidio(model, wanted, language, score)
        if callable(model):
            return _spacy(model, wanted)
        raise ConfigError("nlp.model: is neither a spaCy pipeline nor a Presidio analyzer")
    if engine == "spacy":
        if not model:
            raise ConfigError("nlp: name the model, as in spacy:en_core_web_sm")
        return _spacy(_load_spacy(model), wanted)
    if engine == "presidio":
        return _presidio(_load_presidio(), wanted, language, score)
    raise ConfigError(f"nlp: {engine!r} is none of spacy:MODEL, presidio")


def _load_spacy(name: str) -> Callable[[str], Any]:
    try:
        import spacy  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        raise ConfigError(f"nlp: spacy:{name} needs the package spacy: {_INSTALL}") from None
    try:
        pipeline: Callable[[str], Any] = spacy.load(name)
    except OSError as error:
        raise ConfigError(
            f"nlp: the spaCy model {name} is not installed: python -m spacy download {name}"
        ) from error
    return pipeline


def _load_presidio() -> Any:
    try:
        from presidio_analyzer import (  # type: ignore[import-not-found,unused-ignore]
            AnalyzerEngine,
        )
    except ImportError:
        raise ConfigError(
            f"nlp: presidio needs the package presidio-analyzer: {_INSTALL}"
        ) from None
    return AnalyzerEngine()


def _spacy(pipeline: Callable[[str], Any], wanted: frozenset[str]) -> Find:
    def find(text: str) -> Iterator[tuple[int, int, str]]:
        for entity in pipeline(text).ents:
            category = LABELS.get(entity.label_)
            if category in wanted:
                yield entity.start_char, entity.end_char, category

    return find


def _presidio(analyzer: Any, wanted: frozenset[str], language: str, score: float) -> Find:
    labels: Iterable[str] = [label for label, category in LABELS.items() if category in wanted]
    supported = set(analyzer.get_supported_entities(language))
    labels = [label for label in labels if label in supported]

    def find(text: str) -> Iterator[tuple[int, int, str]]:
        for result in analyzer.analyze(
            text=text, language=language, entities=labels, score_threshold=score
        ):
            yield result.start, result.end, LABELS[result.entity_type]

    return find
