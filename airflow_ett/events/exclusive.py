"""Files that appear whole, and for one of several who want to make them.

A link of a finished file is atomic on local disks and on NFS, where ``O_EXCL`` alone could show an
empty file.
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
    """Give the finished file the name ``path``; False when that exists. Raises ``OSError``."""
    try:
        os.link(finished, path)
    except FileExistsError:
        return False
    return True
