"""Several processes over one PostgreSQL: the example of a fleet, and two workers."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.stores

ROOT = Path(__file__).resolve().parents[2]


def test_two_agents_share_a_budget_and_an_approver(server: Any) -> None:
    path = os.pathsep.join([str(ROOT / "core"), str(ROOT / "plugins"), *sys.path])
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "hosts" / "fleet.py")],
        env={**os.environ, "PYTHONPATH": path, "CHECKREIN_TEST_POSTGRES": server.uri},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    orders = [int(number) for number in re.findall(r"buyer-\d: (\d+) orders", done.stdout)]
    assert len(orders) == 2
    assert sum(orders) == 10
    assert "10 calls of 10 in all; ['buyer-1', 'buyer-2'] were let through" in done.stdout


def test_two_workers_share_and_one_is_killed(
    url: str, child: Any, tmp_path: Path, full: bool
) -> None:
    # The same as over a SQLite file.
    spec = importlib.util.spec_from_file_location("workers", ROOT / "tests/core/test_worker.py")
    assert spec is not None
    assert spec.loader is not None
    workers = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(workers)
    workers.check_two_workers(workers.Place(tmp_path, url, child), 60 if full else 8)
