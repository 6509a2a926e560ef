"""Files that appear whole, for one of several who want to make them, and are seen by all.

Written for local disks and for NFS, where a link of a finished file is atomic (``O_EXCL`` alone
could show an empty file), an answer can get lost, so that the client's second request finds the
file made, and a client may list a folder as it was up to a minute ago.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def draft(folder: Path, content: bytes) -> Iterator[Path]:
    """Write a finished file aside in ``folder`` while it is needed. Raises ``OSError``."""
    handle, name = tempfile.mkstemp(prefix="draft-", dir=folder)
    path = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        yield path
    finally:
        path.unlink(missing_ok=True)


def link(finished: Path, path: Path) -> bool:
    """Give the finished file the name ``path``; False when another has it. Raises ``OSError``."""
    try:
        os.link(finished, path)
    except FileExistsError:
        return finished.samefile(path)
    return True


def freshen(folder: Path) -> None:
    """Have the folder listed as it is now, and not as an NFS client remembers it.

    A client that makes an entry learns whether others have done so, and forgets its listing then.
    Nothing of it need reach a disk: watchers do this at every look. Where it is not allowed, or
    there is no such folder, nothing happens.
    """
    with contextlib.suppress(OSError):
        handle, name = tempfile.mkstemp(prefix="draft-", dir=folder)
        os.close(handle)
        Path(name).unlink()
