"""Every store does what the contract says."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from checkrein.store import Store, open_store
from checkrein.testing.check_store import CHECKS, check_store


@pytest.fixture(params=["memory", "sqlite"])
def new_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    numbers = itertools.count()
    if request.param == "memory":
        return lambda: open_store("memory:")
    return lambda: open_store(f"sqlite:///{tmp_path}/{next(numbers)}.db")


@pytest.fixture
def store(new_store: Callable[[], Store]) -> Iterator[Store]:
    store = new_store()
    yield store
    store.close()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_conformance(check: Callable[[Store], None], store: Store) -> None:
    check(store)


def test_check_store_runs_them_all_and_names_the_one_that_fails(
    new_store: Callable[[], Store],
) -> None:
    check_store(new_store)

    def broken() -> Store:
        store = new_store()
        store.drop_owner = lambda _: None  # type: ignore[method-assign]  # the fault to find
        return store

    with pytest.raises(AssertionError, match=r"^leases_are_kept: "):
        check_store(broken)
