"""`checkrein prices`: look up, compare, import an overlay, show its age."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from checkrein import Rein, cli
from checkrein_plugins.cost import PriceBook
from checkrein_plugins.prices_command import app

OWN = 'version = "7"\n[models.mine]\ninput = 1.5\noutput = 2\ntiers = { batch = 0.5 }\n'


def run(capsys: Any, *arguments: str) -> tuple[int, str, str]:
    code = cli._invoke("prices", app, list(arguments))
    said = capsys.readouterr()
    return code, said.out, said.err


def test_look_up(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "own.toml").write_text(OWN)
    overlay = str(tmp_path / "own.toml")
    code, out, _ = run(capsys, "show", "mine", "gpt-4o", "--overlay", overlay, "--json")
    mine, other = json.loads(out)["prices"]
    assert code == 0
    assert (mine["source"], mine["bands"][0]["input"]) == ("own.toml 7", 1.5)
    assert other["source"].startswith("genai-prices ")
    code, out, _ = run(capsys, "show", "mine", "--tier", "batch", "--overlay", overlay)
    assert out.splitlines()[1].split()[:4] == ["mine", "batch", "0.75", "1"]
    code, out, _ = run(capsys, "show", "nobody")
    assert code == 1
    assert "no price is known" in out


def test_the_configured_prices_are_looked_up(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own.toml").write_text(OWN)
    (tmp_path / "checkrein.toml").write_text('[plugins.budget]\nusd = 1\nprices = "own.toml"\n')
    monkeypatch.chdir(tmp_path)
    assert run(capsys, "show", "mine")[0] == 0
    assert "own.toml 7" in run(capsys, "age")[1]


def test_compare(capsys: Any) -> None:
    models = ("gpt-4o", "gpt-4o-mini", "nobody")
    code, out, _ = run(capsys, "compare", *models, "--input", "1000000", "--output", "0", "--json")
    costs = json.loads(out)["costs"]
    assert code == 1
    assert [c["model"] for c in costs] == ["gpt-4o-mini", "gpt-4o", "nobody"]
    price = PriceBook().find("gpt-4o")
    assert price is not None
    assert costs[1]["nano_usd"] == price.bound(10**6, 0)
    lines = run(capsys, "compare", "gpt-4o", "gpt-4o-mini", "--cached", "1000")[1].splitlines()
    assert lines[2].endswith("█" * 20)
    assert lines[1].split()[0] == "gpt-4o-mini"


def test_import_an_overlay_and_use_it(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "own.toml").write_text(OWN)
    to = tmp_path / "prices.json"
    code, out, err = run(capsys, "import", str(tmp_path / "own.toml"), "--to", str(to))
    assert code == 0
    assert out.splitlines()[1].split() == ["mine", "1.5", "2"]
    assert 'overlay = "prices.json" in [plugins.cost]' in err
    assert run(capsys, "import", str(tmp_path / "own.toml"), "--to", str(to))[0] == 1
    assert run(capsys, "import", str(tmp_path / "own.toml"), "--to", str(to), "--force")[0] == 0
    (tmp_path / "checkrein.toml").write_text('[plugins.cost]\noverlay = "prices.json"\n')
    with Rein.from_file(tmp_path / "checkrein.toml") as rein, rein.session():
        answer = {"usage": {"prompt_tokens": 1_000_000, "completion_tokens": 0}}
        rein.model_call(lambda **_: answer, model="mine", messages=[])
        (row,) = rein.store.costs().rows
    assert (row.cost, row.source) == (1_500_000_000, "prices.json 7")


def test_a_list_as_litellm_publishes_it(tmp_path: Path, capsys: Any) -> None:
    models = {
        "sample_spec": {"input_cost_per_token": 0.0, "output_cost_per_token": 0.0},
        "gpt-4o": {"input_cost_per_token": 2.5e-06, "output_cost_per_token": 1e-05,
                   "cache_read_input_token_cost": 1.25e-06, "litellm_provider": "openai"},
        "other": {"input_cost_per_token": 3e-07, "output_cost_per_token": 2.5e-06},
        "image": {"input_cost_per_pixel": 1e-06},
    }  # fmt: skip
    (tmp_path / "list.json").write_text(json.dumps(models))
    to = tmp_path / "prices.json"
    code, out, _ = run(
        capsys, "import", str(tmp_path / "list.json"), "--to", str(to), "--version", "nov", "--json"
    )
    told = json.loads(out)
    assert code == 0
    assert (told["models"], told["version"]) == (2, "nov")
    price = PriceBook(to).find("other")
    assert price is not None
    assert price.bound(10**6, 10**6) == 2_800_000_000


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"models": {"m": {"input": -1, "output": 1}}}', "m.input: must not be negative"),
        ('{"models": {"m": {"input": 1, "output": 1, "x": 1}}}', "x: unknown key"),
        ('{"a": 1}', "has neither `models` nor"),
        ("{", "own.json:1"),
    ],
)
def test_a_bad_file_writes_nothing(tmp_path: Path, capsys: Any, text: str, told: str) -> None:
    (tmp_path / "own.json").write_text(text)
    to = tmp_path / "prices.json"
    code, _, err = run(capsys, "import", str(tmp_path / "own.json"), "--to", str(to))
    assert code == 2
    assert told in err
    assert not to.exists()


def test_age(capsys: Any) -> None:
    code, out, _ = run(capsys, "age", "--json")
    told = json.loads(out)
    assert code == 0
    assert told["library"].startswith("genai-prices ")
    assert told["models"] > 1000
    assert told["days"] >= 0
    assert told["overlay"] is None
