"""Where models are published to: a folder, an object store, an HTTP service, MLflow, others."""

from __future__ import annotations

from pathlib import Path

from airflow_ett.publish.registries.folder import FolderRegistry
from airflow_ett.publish.registries.protocol import (
    MANIFEST_FILE,
    PROGRAM_FILE,
    WEIGHTS_FILE,
    Age,
    Registry,
    Snapshot,
)

__all__ = [
    "MANIFEST_FILE",
    "PROGRAM_FILE",
    "WEIGHTS_FILE",
    "Age",
    "Registry",
    "Snapshot",
    "open_registry",
]


def open_registry(place: str, name: str) -> Registry:
    """Return the registry of model ``name`` at a place: a folder.

    Raises :class:`ConfigurationError` that names the parameter ``registry`` or ``name``.
    """
    return FolderRegistry(Path(place), name)
