"""Payloads survive kills, are checked before they are believed, and can be erased or sealed."""

from __future__ import annotations

import base64
import builtins
import dataclasses
import fcntl
import hashlib
import multiprocessing
import os
import random
import signal
import stat
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkrein.codec import decode, encode
from checkrein.errors import ConfigError, StoreUnavailable, Unencodable
from checkrein.keys import seal_key, store_key
from checkrein.payload import ROW_LIMIT, Vault
from checkrein.store import ERASED

BIG = {"text": "x" * (ROW_LIMIT + 1)}
KEY = bytes(range(32))


@pytest.fixture
def vault(tmp_path):
    return Vault(tmp_path / "payloads", max_bytes=1 << 20)


@pytest.fixture(params=[None, KEY], ids=["plain", "sealed"])
def either(request, tmp_path):
    return Vault(tmp_path / "payloads", max_bytes=1 << 20, seal_key=request.param)


def mode(path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def names(directory) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_a_small_payload_stays_in_its_row(either, tmp_path):
    packed = either.pack({"a": [1, "ü", None]})
    assert packed.place == "row"
    assert packed.ref == hashlib.sha256(packed.salt + packed.data).hexdigest()
    assert either.unpack(packed) == {"a": [1, "ü", None]}
    assert not (tmp_path / "payloads").exists()


def test_a_large_payload_is_a_private_file(either, tmp_path):
    packed = either.pack(BIG)
    assert (packed.place, packed.data.decode()) == ("file", packed.ref)
    file = tmp_path / "payloads" / packed.ref
    assert either.unpack(packed) == BIG
    assert (mode(file), mode(file.parent)) == (0o600, 0o700)
    assert hashlib.sha256(packed.salt + file.read_bytes()).hexdigest() == packed.ref
    assert names(file.parent) == {packed.ref}


def test_a_payload_above_the_limit_is_only_measured(either):
    packed = either.pack({"text": "x" * (1 << 20)})
    assert (packed.place, packed.data, packed.size) == ("omitted", b"", (1 << 20) + 11)
    assert len(packed.ref) == 64
    assert either.unpack(packed) is ERASED


def test_without_a_directory_everything_is_in_rows():
    vault = Vault(None, max_bytes=1 << 20)
    packed = vault.pack(BIG)
    assert packed.place == "row"
    assert vault.unpack(packed) == BIG
    vault.erase(packed)
    assert vault.sweep() == 0


def test_equal_payloads_have_different_refs_and_files(vault):
    first, second = vault.pack(BIG), vault.pack(BIG)
    assert first.ref != second.ref
    vault.erase(first)
    vault.erase(first)
    assert vault.unpack(second) == BIG
    with pytest.raises(StoreUnavailable, match="cannot be read"):
        vault.unpack(first)


@pytest.mark.parametrize("tree", [{"a": 1}, BIG], ids=["row", "file"])
def test_altered_bytes_are_found(either, tmp_path, tree):
    packed = either.pack(tree)
    if packed.place == "file":
        file = tmp_path / "payloads" / packed.ref
        file.write_bytes(file.read_bytes()[:-1] + b"?")
    else:
        packed = dataclasses.replace(packed, data=packed.data[:-1] + b"?")
    with pytest.raises(StoreUnavailable, match="do not match"):
        either.unpack(packed)


@pytest.mark.parametrize("name", [b"../secret", b"a" * 64, b"\xff" * 64])
def test_a_row_can_name_no_other_file(vault, tmp_path, name):
    packed = vault.pack(BIG)
    (tmp_path / "secret").write_text("{}")
    forged = dataclasses.replace(packed, data=name)
    with pytest.raises(StoreUnavailable, match="wrong file"):
        vault.unpack(forged)
    with pytest.raises(StoreUnavailable, match="wrong file"):
        vault.erase(forged)
    assert (tmp_path / "secret").exists()


def test_what_is_not_a_tree_is_refused(vault):
    with pytest.raises(Unencodable):
        vault.pack({"a": object()})


def test_a_directory_that_cannot_be_written_is_a_typed_error(tmp_path):
    (tmp_path / "payloads").write_text("a file")
    with pytest.raises(StoreUnavailable, match="cannot be written"):
        Vault(tmp_path / "payloads", max_bytes=1 << 20).pack(BIG)


@given(st.recursive(st.none() | st.text() | st.floats() | st.binary(), st.lists))
def test_every_tree_comes_back(value):
    tree = encode({"v": value})
    for vault in (Vault(None, max_bytes=1 << 20), Vault(None, max_bytes=1 << 20, seal_key=KEY)):
        assert repr(decode(vault.unpack(vault.pack(tree)))) == repr({"v": value})


# sealing


def test_sealed_bytes_show_nothing(tmp_path):
    sealed = Vault(tmp_path, max_bytes=1 << 20, seal_key=KEY)
    row, file = sealed.pack({"a": "visible"}), sealed.pack({"a": "visible", **BIG})
    assert b"visible" not in row.data
    assert b"visible" not in (tmp_path / file.ref).read_bytes()
    assert sealed.pack({"a": 1}).data != sealed.pack({"a": 1}).data


def test_the_wrong_or_missing_key_is_said_with_where_to_look():
    packed = Vault(None, max_bytes=99, seal_key=KEY).pack({"a": 1})
    with pytest.raises(StoreUnavailable, match="another key: check CHECKREIN_KEY"):
        Vault(None, max_bytes=99, seal_key=bytes(32)).unpack(packed)
    with pytest.raises(StoreUnavailable, match=r"no key was given.*my\.key"):
        Vault(None, max_bytes=99, key_source="my.key").unpack(packed)


def test_plain_payloads_stay_readable_after_sealing_is_turned_on():
    packed = Vault(None, max_bytes=99).pack({"a": 1})
    assert Vault(None, max_bytes=99, seal_key=KEY).unpack(packed) == {"a": 1}


def test_a_missing_package_is_named(monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith("cryptography"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=r'pip install "checkrein\[crypto\]"'):
        Vault(None, max_bytes=99, seal_key=KEY)
    assert Vault(None, max_bytes=99).pack({"a": 1}).place == "row"


# kills and sweeping

PACK_FOREVER = """
import sys
from pathlib import Path
from checkrein.payload import Vault
vault = Vault(Path(sys.argv[1]), max_bytes=1 << 24)
n = 0
while True:
    n += 1
    packed = vault.pack({"n": n, "text": "x" * 300_000})
    print(packed.ref, packed.salt.hex(), n, flush=True)
"""


def test_a_kill_at_any_moment_leaves_no_half_file(tmp_path):
    directory = tmp_path / "payloads"
    vault = Vault(directory, max_bytes=1 << 24)
    told = []
    for _ in range(8):
        with subprocess.Popen(
            [sys.executable, "-c", PACK_FOREVER, str(directory)],
            env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
            stdout=subprocess.PIPE,
            text=True,
        ) as child:
            told.append(child.stdout.readline())
            time.sleep(random.uniform(0, 0.05))
            child.send_signal(signal.SIGKILL)
            told += child.stdout.read().splitlines()
    salts = {}
    for line in told:
        if len(parts := line.split()) == 3:  # the last line may be cut off
            ref, salt, n = parts
            salts[ref] = bytes.fromhex(salt)
            template = vault.pack({"n": 0})
            packed = dataclasses.replace(
                template, ref=ref, salt=salts[ref], data=ref.encode(), place="file"
            )
            assert vault.unpack(packed) == {"n": int(n), "text": "x" * 300_000}
    assert len(salts) >= 8
    # A file that nobody was told of is whole as well: its size says so.
    for name in names(directory):
        if len(name) == 64:
            assert (directory / name).stat().st_size > 300_000
    vault.sweep()
    assert all(len(name) == 64 for name in names(directory))
    assert salts.keys() <= names(directory)


def test_a_sweep_spares_writers_that_live_and_files_that_are_named(vault, tmp_path):
    kept, lost = vault.pack(BIG), vault.pack(BIG)
    directory = tmp_path / "payloads"
    (directory / ".tmp-dead").write_text("half")
    (directory / "unrelated.txt").write_text("not ours")
    with (directory / ".tmp-alive").open("w") as alive:
        fcntl.flock(alive, fcntl.LOCK_EX)
        assert vault.sweep() == 1
        assert vault.sweep(lambda ref: ref == kept.ref) == 0  # too young to be called lost
        assert vault.sweep(lambda ref: ref == kept.ref, older_than=-1) == 1
        assert names(directory) == {kept.ref, ".tmp-alive", "unrelated.txt"}
    assert vault.unpack(kept) == BIG
    with pytest.raises(StoreUnavailable):
        vault.unpack(lost)


def pack_some(directory, count, results):
    vault = Vault(directory, max_bytes=1 << 20)
    results.put([(p.ref, p.salt) for p in (vault.pack(BIG) for _ in range(count))])


def test_sweeping_while_others_write_loses_nothing(tmp_path):
    directory = tmp_path / "payloads"
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    writers = [context.Process(target=pack_some, args=(directory, 40, results)) for _ in range(2)]
    for writer in writers:
        writer.start()
    vault = Vault(directory, max_bytes=1 << 20)
    while any(writer.is_alive() for writer in writers) and results.empty():
        vault.sweep()
        time.sleep(0.001)
    refs = [one for _ in writers for one in results.get(timeout=60)]
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    template = vault.pack(BIG)
    for ref, salt in refs:
        packed = dataclasses.replace(template, ref=ref, salt=salt, data=ref.encode())
        assert vault.unpack(packed) == BIG
    assert len(refs) == 80


def test_salts_differ_on_both_sides_of_a_fork(vault):
    code = (
        "import os, sys; from checkrein.payload import Vault; v = Vault(None, max_bytes=99);"
        "v.pack({}); child = os.fork();"
        "os.write(1, v.pack({}).salt.hex().encode() + b'\\n');"
        "child and os.waitpid(child, 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        check=True,
    )
    assert len(set(done.stdout.split())) == 2


# keys


def test_the_store_key_is_made_once_and_private(tmp_path):
    path = tmp_path / "new" / "store.key"
    key = store_key(path)
    assert len(key) == 32
    assert store_key(path) == key
    assert mode(path) == 0o600
    assert names(path.parent) == {"store.key"}


def race_for_key(path, barrier, results):
    barrier.wait()
    results.put(store_key(path))


def test_racing_processes_agree_on_one_key(tmp_path):
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(4), context.Queue()
    racers = [
        context.Process(target=race_for_key, args=(tmp_path / "key", barrier, results))
        for _ in range(4)
    ]
    for racer in racers:
        racer.start()
    keys = {results.get(timeout=60) for _ in racers}
    for racer in racers:
        racer.join()
    assert keys == {(tmp_path / "key").read_bytes()}
    assert names(tmp_path) == {"key"}


@pytest.mark.parametrize("content", [b"", b"x" * 31, b"x" * 33])
def test_a_key_of_wrong_length_is_refused(tmp_path, content):
    path = tmp_path / "key"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(StoreUnavailable, match="32 bytes"):
        store_key(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("bits", [0o640, 0o604, 0o660])
def test_a_key_that_others_can_read_is_refused(tmp_path, bits):
    path = tmp_path / "key"
    store_key(path)
    path.chmod(bits)
    with pytest.raises(StoreUnavailable, match="chmod 600"):
        store_key(path)


def test_a_link_in_place_of_a_key_is_refused(tmp_path):
    store_key(tmp_path / "real")
    (tmp_path / "key").symlink_to(tmp_path / "real")
    with pytest.raises(StoreUnavailable):
        store_key(tmp_path / "key")


@pytest.mark.parametrize(
    "text",
    [
        KEY.hex(),
        KEY.hex().upper(),
        base64.urlsafe_b64encode(KEY).decode(),
        base64.urlsafe_b64encode(KEY).decode().rstrip("="),
        base64.b64encode(KEY).decode() + "\n",
    ],
)
def test_the_seal_key_comes_from_the_environment(tmp_path, monkeypatch, text):
    monkeypatch.setenv("CHECKREIN_KEY", text)
    assert seal_key(tmp_path / "key") == KEY
    assert not (tmp_path / "key").exists()


@pytest.mark.parametrize(
    "text", ["", "short", "z" * 64, "!" * 43, "é" * 43, KEY.hex() + "00", "A" * 42 + "B"]
)
def test_a_bad_key_in_the_environment_is_refused_and_not_shown(tmp_path, monkeypatch, text):
    monkeypatch.setenv("CHECKREIN_KEY", text)
    with pytest.raises(ConfigError, match="CHECKREIN_KEY") as caught:
        seal_key(tmp_path / "key")
    assert not text or text not in str(caught.value)
    assert not (tmp_path / "key").exists()


def test_without_the_variable_the_seal_key_is_a_private_file(tmp_path, monkeypatch):
    monkeypatch.delenv("CHECKREIN_KEY", raising=False)
    key = seal_key(tmp_path / "key")
    assert seal_key(tmp_path / "key") == key
    assert mode(tmp_path / "key") == 0o600
