"""Where a job's log lies: a folder, an object store, or the API. One small protocol for all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from airflow_ett.storage.folder import FolderStorage
from airflow_ett.storage.protocol import Entry, Readable, Storage

__all__ = [
    "Entry",
    "FolderStorage",
    "Readable",
    "Storage",
    "is_at_api",
    "is_folder",
    "open_readable",
    "open_storage",
]


def is_at_api(place: str) -> bool:
    """Return whether a place is an address of the API."""
    return place.startswith(("http://", "https://"))


def is_folder(place: Path | str) -> bool:
    """Return whether a place is a folder: neither the URI of an object store nor an address."""
    return "://" not in str(place)


def open_storage(place: str, token: Callable[[], str] | None = None) -> Storage:
    """Return the storage at an address of the API, the URI of an object store, or a folder.

    ``token`` returns the secret for the API, asked for at each request; others need none. Nothing
    is connected yet. Raises :class:`ConfigurationError` where fsspec, or its package for the
    scheme, is missing.
    """
    if is_at_api(place):
        from airflow_ett.storage.http import HttpStorage

        return HttpStorage(place, token)
    return open_readable(place)


def open_readable(place: str | Path) -> Readable:
    """Return the folder, or the object store's folder, that an ingest can read.

    Raises :class:`ConfigurationError` as :func:`open_storage` does.
    """
    if is_folder(place):
        return FolderStorage(Path(place).absolute())
    from airflow_ett.storage.objects import ObjectStorage

    return ObjectStorage(str(place))
