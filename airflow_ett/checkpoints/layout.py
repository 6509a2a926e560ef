"""Where a checkpoint lies: one folder per save, named by cursor and attempt, never written twice.

::

    <root>/c000000000051200-s2.0.0/
      .metadata, __0_0.distcp, …   the files of torch's distributed checkpoint
      manifest.json                what was saved and the digest of every file
      COMMITTED                    sha256 of the manifest; written last, durable when it exists
    <root>/.lease/                 who may commit: see :mod:`airflow_ett.checkpoints.lease`
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from airflow_ett.checkpoints.remote import RemotePath
from airflow_ett.errors import ConfigurationError
from airflow_ett.events import AttemptId

Folder = Path | RemotePath
"""Where a checkpoint, or a file of one, lies."""

MANIFEST = "manifest.json"
MARKER = "COMMITTED"
LEASE = ".lease"

_NAME = re.compile(r"c(\d{15,})-s(\d+)\.(\d+)\.(\d+)")


def folder_name(cursor: int, attempt: AttemptId) -> str:
    """Name of the folder for what ``attempt`` saves at ``cursor`` (global samples)."""
    return f"c{cursor:015d}-s{attempt}"


def parse_name(name: str) -> tuple[int, AttemptId] | None:
    """Cursor and attempt in a folder's name, or None where it is not a checkpoint's name."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    cursor, *attempt = (int(number) for number in found.groups())
    return cursor, AttemptId(*attempt)


def folder(uri: str) -> Folder:
    """Return what lies at a path or a URI; one with a scheme but ``file`` is fsspec's.

    Raises :class:`ConfigurationError` for a relative path, and where fsspec does not know it.
    """
    if "://" in uri and urlsplit(uri).scheme != "file":
        return RemotePath(uri)
    return _local(uri)


def listing(path: Folder) -> list[Folder]:
    """Return what is in a folder, by name. Raises ``OSError``."""
    entries: list[Folder] = [*path.iterdir()]
    return sorted(entries, key=str)


def _local(uri: str) -> Path:
    parts = urlsplit(uri)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        path = Path(unquote(parts.path))
    elif "://" not in uri:
        path = Path(uri)
    else:
        raise ConfigurationError("checkpoint_uri", f"{uri!r} is no file:// URI on this host")
    if not path.is_absolute():
        raise ConfigurationError("checkpoint_uri", f"{uri!r} must be an absolute path")
    return path
