"""How every command finds its configuration, its store and the application's tools."""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from checkrein import _config_file
from checkrein.attendance import unattended
from checkrein.cli._output import Out
from checkrein.errors import ConfigError, Conflict

if TYPE_CHECKING:
    from checkrein._config_file import Document
    from checkrein._config_model import Settings
    from checkrein.rein import Rein

DEFAULT = Path("checkrein.toml")


@dataclass(slots=True)
class Place:
    """What the shared options say."""

    config: Path | None = None
    app: str | None = None
    store: str | None = None

    # -- the configuration

    def file(self) -> Path | None:
        """The configuration file: named, or here, or from the environment."""
        if self.config is not None:
            return self.config
        if DEFAULT.exists():
            return DEFAULT
        named = os.environ.get("CHECKREIN_CONFIG")
        return Path(named) if named else None

    def document(self) -> tuple[Document, Settings] | None:
        """The configuration, checked; None if there is none."""
        from checkrein import policy

        path = self.file()
        if path is None:
            return None
        document = _config_file.read(path)
        return document, policy.check(document)

    def app_name(self) -> str | None:
        """`module:rein`, from the option or the file."""
        if self.app is not None:
            return self.app
        found = self.document()
        return found[1].app if found is not None else None

    # -- a Rein to look with

    def looking(self) -> Rein:
        """A Rein without plugins and tools on the store: for reading and deciding."""
        from checkrein.rein import Rein

        if self.store is not None:
            return Rein(store=existing(self.store))
        found = self.document()
        if found is not None and "store" in found[1].model_fields_set:
            document, settings = found
            from checkrein import policy

            keys = ("store", "durability", "encrypt", "max_payload")
            given = policy.rein_arguments(document, settings)
            given = {key: given[key] for key in keys if key in given}
            given["store"] = existing(given["store"])
            return Rein(**given)
        if self.app_name() is not None:
            return self.acting()
        raise ConfigError(
            "no store is named: use --store sqlite:///PATH, --config FILE or --app MODULE:REIN, "
            "or write a checkrein.toml here (checkrein init)"
        )

    # -- the application's own Rein

    def acting(self) -> Rein:
        """The application's Rein, with its tools. Raises `ConfigError`."""
        name = self.app_name()
        if name is None:
            raise ConfigError(
                "the application's tools are needed: name them with --app MODULE:REIN, or write "
                'app = "module:rein" into the configuration'
            )
        rein = self.application(name)
        if self.store is not None and _differs(rein.store.url, self.store):
            rein.close()
            raise ConfigError(f"--store {self.store} is not the store of {name}; leave --store out")
        return rein

    def application(self, name: str) -> Rein:
        """Import the Rein that `name` names; its module lies here or beside the configuration.

        What the configuration names is looked for beside it first. Raises `ConfigError`.
        """
        path = self.file()
        beside = [] if path is None else [path.resolve().parent]
        here = Path.cwd()
        return load_app(name, [here, *beside] if self.app is not None else [*beside, here])


def existing(url: str) -> str:
    """`url`, if there is something to look at. Raises `Conflict` or `ConfigError`."""
    if url.partition(":")[0] == "memory":
        raise ConfigError(
            "store memory: lives and ends with its own process: nothing can be seen from here; "
            "configure a store such as sqlite:///checkrein.db"
        )
    if url.startswith("sqlite:"):
        from checkrein.store._address import path_of

        path = path_of(url)
        if not path.exists():
            raise Conflict(f"store {path} does not exist: nothing has been recorded there yet")
    return url


def _differs(one: str, other: str) -> bool:
    from checkrein.store._address import path_of

    if one.startswith("sqlite:") and other.startswith("sqlite:"):
        return path_of(one) != path_of(other)
    return one != other


def load_app(name: str, folders: Sequence[Path]) -> Rein:
    """Import `module:attribute`, from these folders too; a Rein or a function for one.

    Without a terminal, approvers that ask at one start all the same, and answer nothing:
    whoever undoes or decides from a timer needs none. Raises `ConfigError`.
    """
    from checkrein.rein import Rein

    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise ConfigError(f"app {name!r}: write MODULE:REIN, for example shop.agent:rein")
    sys.path[:0] = map(str, folders)
    nobody = not all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))
    try:
        # Standard output is the command's own: it may be a JSON document.
        with redirect_stdout(sys.stderr), unattended(nobody=nobody):
            module = importlib.import_module(module_name)
    except ConfigError as error:
        raise ConfigError(f"app {name}: {error}{_elsewhere(folders)}") from error
    except Exception as error:
        # Importing runs other people's code: whatever it raises, the application is not usable.
        raise ConfigError(
            f"app {name}: {module_name} cannot be imported: {type(error).__name__}: {error}"
            f"{_elsewhere(folders)}"
        ) from error
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            reins = [key for key, value in vars(module).items() if isinstance(value, Rein)]
            hint = f"; its Rein is called {reins[0]}" if reins else ""
            raise ConfigError(f"app {name}: {module_name} has no {attribute}{hint}")
        found = getattr(found, part)
    if not isinstance(found, Rein) and callable(found):
        with redirect_stdout(sys.stderr), unattended(nobody=nobody):
            found = found()
    if not isinstance(found, Rein):
        raise ConfigError(f"app {name}: is a {type(found).__name__}, not a Rein")
    return found


def _elsewhere(folders: Sequence[Path]) -> str:
    """What may be wrong where the application is imported away from its configuration."""
    other = [folder for folder in folders if folder != Path.cwd()]
    if not other:
        return ""
    return f" (if the application reads relative paths, run the command in {other[0]})"


# -- the options that every command has

ConfigOption = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="Configuration file.")
]
AppOption = Annotated[
    str | None, typer.Option("--app", metavar="MODULE:REIN", help="The application.")
]
StoreOption = Annotated[
    str | None, typer.Option("--store", metavar="URL", help="The store to look at.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def command(fn: Callable[..., int]) -> Callable[..., int]:
    """Give a command the shared options: it is called with `place` and `out` instead of them."""

    @functools.wraps(fn)
    def with_options(
        config: Path | None, app: str | None, store: str | None, json: bool, **given: Any
    ) -> int:
        return fn(place=Place(config, app, store), out=Out(as_json=json), **given)

    own = [
        p
        for p in inspect.signature(fn, eval_str=True).parameters.values()
        if p.name not in ("place", "out")
    ]
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, kind, default in (
            ("config", ConfigOption, None),
            ("app", AppOption, None),
            ("store", StoreOption, None),
            ("json", JsonOption, False),
        )
    ]
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own] + shared
    twin = cast("Any", with_options)
    twin.__signature__ = inspect.Signature(parameters, return_annotation=int)
    twin.__annotations__ = {p.name: p.annotation for p in parameters} | {"return": int}
    # Typer follows `__wrapped__` to annotations that are not these.
    del twin.__wrapped__
    return with_options
