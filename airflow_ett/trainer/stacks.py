"""Where every thread of every rank stands, written down on the agent's request.

The Session has a signal write all stacks into a file of the agent's: the handler is C code, so it
works while a rank hangs in a collective and holds the interpreter.
"""

from __future__ import annotations

import faulthandler
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

VARIABLE = "ETT_STACKS"
"""Environment variable that names the file of a rank; unset without our agent."""

SIGNAL = signal.SIGRTMIN + 11
"""A signal that nobody else uses: SIGUSR1 and SIGUSR2 are schedulers' and users'."""

_offered: IO[bytes] | None = None


def offer(environ: Mapping[str, str] = os.environ) -> None:
    """Have the signal write this process's stacks from here on, unless it has another meaning."""
    global _offered
    path = environ.get(VARIABLE)
    if not path or _offered is not None or signal.getsignal(SIGNAL) is not signal.SIG_DFL:
        return
    with suppress(OSError, ValueError, AttributeError):
        draft = Path(path).with_suffix(".draft")
        file = draft.open("ab", buffering=0)
        faulthandler.register(SIGNAL, file=file, all_threads=True)
        _offered = file  # the handler writes to its descriptor as long as the process lives
        draft.rename(path)  # whoever finds it may send the signal


def file_of(folder: Path, rank: int) -> Path:
    """Return the file for a rank's stacks in an agent's folder."""
    return folder / f"{rank}.stacks"


def request(pid: int, path: Path) -> None:
    """Ask a process for its stacks, if it has offered them: to any other the signal is fatal."""
    if path.exists():
        with suppress(ProcessLookupError):
            os.kill(pid, SIGNAL)


def collect(path: Path) -> str:
    """Return what a process has written since it was last asked for, and forget it."""
    try:
        text = path.read_text(errors="replace")
        os.truncate(path, 0)
    except OSError:
        return ""
    return text
