"""Whether somebody else could have written what is about to be executed."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class Untrusted(PermissionError):
    """Somebody else can write there, or has; the message says to what, and how it shows."""


def check(folder: Path) -> Path:
    """Return where a folder really lies, without links, if only this user, or root, can write.

    So it must be for each folder above it, too, but for those with a sticky bit, such as ``/tmp``:
    there nobody can replace what is another's. Use what is returned: a link may be turned
    elsewhere. Raises :class:`Untrusted`, ``FileNotFoundError`` where there is no such folder.
    """
    real = folder.resolve(strict=True)
    for path in (real, *real.parents):
        _check(path, path.stat(), above=path != real)
    return real


def make(folder: Path) -> Path:
    """Make a folder into which only this user writes, and return it as :func:`check` does.

    Raises ``OSError``, of which :class:`Untrusted` is one.
    """
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)
    return check(folder)


def read(path: Path) -> bytes:
    """Return a file's content if only this user, or root, can have written it.

    Raises ``OSError``, of which :class:`Untrusted` is one.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise Untrusted(f"{path} is a link") from error
        raise
    with os.fdopen(file, "rb") as opened:
        facts = os.fstat(file)
        if not stat.S_ISREG(facts.st_mode):
            raise Untrusted(f"{path} is no file")
        _check(path, facts)
        return opened.read()


def _check(path: Path, facts: os.stat_result, *, above: bool = False) -> None:
    if facts.st_uid not in (0, os.getuid()):
        raise Untrusted(f"{path} belongs to somebody else (uid {facts.st_uid})")
    if facts.st_mode & _OTHERS and not (above and facts.st_mode & stat.S_ISVTX):
        mode = f"{stat.S_IMODE(facts.st_mode):04o}"
        remedy = "go-w or +t" if above else "go-w"
        raise Untrusted(f"others can write to {path} (mode {mode}): chmod {remedy}")
