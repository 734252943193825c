"""Approvals asked at the terminal."""

from __future__ import annotations

import getpass
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, Never, TextIO

from pydantic import StrictBool

from checkrein.approval import ApprovalRequest
from checkrein.call import Call
from checkrein.errors import ConfigError
from checkrein.hooks import Plugin
from checkrein.verdicts import Approved, Decision, Rejected
from checkrein_plugins._config import Settings, read, refuse_unknown
from checkrein_plugins.approvers._terminal import POLL, Closed, Interrupted, Lines, shown

if TYPE_CHECKING:
    from checkrein.rein import Rein

_TERMINAL = threading.Lock()
"""There is one terminal: one question at a time, whoever asks."""

_KINDS = {"after": "Review of what was done", "undo": "Before an undo"}

MASKED_YES = "yes masked-ok"
"""What approves a call of which not everything can be seen."""


class _Settings(Settings):
    answer: Literal["yes", "no"] | None = None
    masked_ok: StrictBool = False
    on_eof: Literal["reject", "leave"] = "reject"


class Console(Plugin):
    """Shows a waiting call on the terminal and takes `yes` or `no`, and nothing else.

    `answer`: decide all calls so without asking (for `--yes` and `--no`); they are still
    printed. `masked_ok`: approve calls with masked fields by a plain `yes`; without it they
    take the words `yes masked-ok`. `on_eof`: when the input ends, `reject` the call or `leave`
    it to be decided elsewhere. `input`, `output`: text streams in place of the terminal.

    Ctrl-C at a question refuses the call, and interrupts the process as it does elsewhere.

    `start` raises `ConfigError` where there is no terminal to ask at. A Rein that is not
    `attended` needs none: there nothing is asked, and calls are left to be decided elsewhere,
    or refused where nobody else can.
    """

    def __init__(
        self,
        *,
        answer: Literal["yes", "no"] | None = None,
        masked_ok: bool = False,
        on_eof: Literal["reject", "leave"] = "reject",
        input: TextIO | None = None,
        output: TextIO | None = None,
        **unknown: Never,
    ) -> None:
        refuse_unknown(unknown, "console", (*_Settings.model_fields, "input", "output"))
        settings = read(
            _Settings, {"answer": answer, "masked_ok": masked_ok, "on_eof": on_eof}, "console"
        )
        self._answer = settings.answer
        self._masked_ok = settings.masked_ok
        self._leave = settings.on_eof == "leave"
        self._input = input
        self._output = output
        self._scripted = input is not None
        self._lock = threading.Lock() if self._scripted else _TERMINAL
        self._lines: Lines | None = None
        self._away: Decision | Literal[False] = False
        """What is answered where nobody sits at the terminal; False: somebody does."""

    def start(self, rein: Rein) -> None:
        """Refuse to start where a question could not be asked."""
        if self._answer is not None or self._scripted:
            return
        if not rein.attended:
            refused = Rejected("console", "nobody sits at the terminal of this process")
            self._away = None if rein.answer_from_store else refused
            return
        if not _is_terminal(sys.stdin) or not (
            self._output is not None or _is_terminal(sys.stderr) or _is_terminal(sys.stdout)
        ):
            raise ConfigError(
                "console: there is no terminal to ask at; decide beforehand with "
                'answer = "yes" or "no", use the callable approver, or leave the console '
                "out and decide with `checkrein approve`"
            )

    def on_approval(self, call: Call, request: ApprovalRequest) -> Decision:
        """Ask; None if somebody else decided in the meantime."""
        output = self._output or (sys.stderr if _is_terminal(sys.stderr) else sys.stdout)
        if self._answer is not None:
            return self._decided(request, output)
        if self._away is not False:
            return self._away
        with self._turn(request) as mine:
            if not mine or not request.is_open():
                return None
            return self._ask(request, output)

    @contextmanager
    def _turn(self, request: ApprovalRequest) -> Iterator[bool]:
        """Wait for the terminal, for as long as the answer is wanted."""
        mine = False
        while request.is_open() and not mine:
            mine = self._lock.acquire(timeout=POLL)
        try:
            yield mine
        finally:
            if mine:
                self._lock.release()

    def _ask(self, request: ApprovalRequest, output: TextIO) -> Decision:
        if self._lines is None:
            self._lines = Lines(self._input if self._input is not None else sys.stdin)
        lines = self._lines
        masked = bool(request.masked) and not self._masked_ok
        word = MASKED_YES if masked else "yes"
        lines.forget()
        _write(output, describe(request))
        with lines.question():
            return self._answered(request, output, lines, word)

    def _answered(
        self, request: ApprovalRequest, output: TextIO, lines: Lines, word: str
    ) -> Decision:
        while True:
            _write(output, f"Run it? Type {word!r} or 'no': ")
            try:
                line = lines.read(request.is_open)
            except Closed:
                _write(output, "\nThe input ended: not approved.\n")
                return None if self._leave else Rejected(_by(), "the console's input ended")
            except Interrupted:
                _write(output, "\nInterrupted: not approved.\n")
                os.kill(os.getpid(), signal.SIGINT)
                return Rejected(_by(), "interrupted at the console")
            if line is None:
                _write(output, f"\n{shown(request.id)} was decided elsewhere.\n")
                return None
            if line == word:
                return Approved(
                    by=_by("masked-ok" if request.masked else ""), masked_ok=bool(request.masked)
                )
            if line == "no":
                return Rejected(by=_by())
            _write(output, f"Only {word!r} and 'no' are understood.\n")

    def _decided(self, request: ApprovalRequest, output: TextIO) -> Decision:
        _write(output, describe(request))
        if self._answer == "no":
            _write(output, "no (decided beforehand)\n")
            return Rejected(by=_by("--no"))
        if request.masked and not self._masked_ok:
            _write(output, "no (fields are masked and masked_ok is not set)\n")
            return Rejected(_by("--yes"), "fields are masked and masked_ok is not set")
        _write(output, "yes (decided beforehand)\n")
        how = "--yes, masked-ok" if request.masked else "--yes"
        return Approved(by=_by(how), masked_ok=bool(request.masked))


def describe(request: ApprovalRequest) -> str:
    """The question as text: everything that the answer is bound to, nothing cut off."""
    lines = [
        "",
        f"{_KINDS.get(request.kind, 'Approval')} {shown(request.id)}: {shown(request.tool)}",
        f"  call           {shown(request.call)}",
        f"  asked because  {shown(request.reason)}",
        f"  rule           {shown(request.rule) or '-'}   risk {shown(request.risk)}",
    ]
    if request.agent:
        lines.append(f"  agent          {shown(request.agent)}")
    if request.who or request.quorum > 1:
        who = ", ".join(map(shown, request.who)) or "anybody"
        lines.append(f"  may answer     {who}; {request.quorum} needed")
    lines += [f"  CHANGED        {shown(line)}" for line in request.changed]
    lines.append("  arguments")
    text = json.dumps(_plain(request.arguments), ensure_ascii=False, indent=2, default=repr)
    lines += [f"    {line}" for line in shown(text).splitlines()]
    if request.masked:
        lines.append(f"  MASKED (not shown to you): {', '.join(map(shown, request.masked))}")
    return "\n".join(lines) + "\n"


def _plain(value: Any) -> Any:
    return dict(value) if not isinstance(value, dict) and hasattr(value, "keys") else value


def _by(how: str = "") -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # no entry for this user id, as in some containers
        user = "unknown"
    return f"console:{user}" + (f" ({how})" if how else "")


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


def _write(output: TextIO, text: str) -> None:
    output.write(text)
    output.flush()
