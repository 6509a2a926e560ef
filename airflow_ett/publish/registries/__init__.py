"""Where models are published to: a folder, an object store, an HTTP service, MLflow, others."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from airflow_ett.errors import ConfigurationError
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

_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
_MLFLOW = "mlflow:"


def open_registry(place: str, name: str) -> Registry:
    """Return the registry of model ``name`` at a place.

    =============================  ================================================================
    place                          registry
    =============================  ================================================================
    a path, ``file://…``           a folder
    ``http://…``, ``https://…``    a service with the protocol of docs/publishing.md
    ``mlflow+http://…``            MLflow's model registry at that tracking URI; ``mlflow:`` at the
                                   one that the environment names (``MLFLOW_TRACKING_URI``)
    ``s3://…``, another scheme     an object store, through fsspec
    ``pkg.module:factory``         what that function returns, called with the model's name
    =============================  ================================================================

    Raises :class:`ConfigurationError` that names the parameter ``registry``, and what the registry
    raises where it cannot be used.
    """
    try:
        scheme, without_scheme = urlsplit(place).scheme, "://" not in place
    except ValueError as error:
        raise ConfigurationError("registry", f"is no address: {error}") from error
    if place == _MLFLOW or scheme.startswith("mlflow+"):
        from airflow_ett.publish.registries.mlflow import MlflowRegistry

        return MlflowRegistry(place.removeprefix("mlflow+").removeprefix(_MLFLOW), name)
    if place.rstrip(":/") in ("", scheme):
        raise ConfigurationError("registry", f"{place!r} names no place")
    if without_scheme and _FUNCTION.fullmatch(place):
        from airflow_ett.publish.registries.own import OwnRegistry

        return OwnRegistry(place, name)
    if without_scheme or scheme == "file":
        return FolderRegistry(_path(place), name)
    if scheme in ("http", "https"):
        from airflow_ett.publish.registries.http import HttpRegistry

        return HttpRegistry(place, name)
    from airflow_ett.publish.registries.objects import ObjectRegistry

    return ObjectRegistry(place, name)


def _path(place: str) -> Path:
    parts = urlsplit(place)
    if parts.scheme == "file" and parts.netloc not in ("", "localhost"):
        raise ConfigurationError("registry", f"{place!r} names a host; write file:///path")
    return Path(unquote(parts.path)) if "://" in place else Path(place)
