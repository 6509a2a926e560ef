"""The steps of publishing: find, or verify, write, try and reveal; then point ``latest`` at it."""

from __future__ import annotations

import errno
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_ett.checkpoints import Checkpoint, open_checkpoint, verify
from airflow_ett.checkpoints.manifest import digest_file
from airflow_ett.errors import CheckpointError, ConfigurationError, PublishError
from airflow_ett.publish.registries import (
    MANIFEST_FILE,
    WEIGHTS_FILE,
    Registry,
    Snapshot,
    open_registry,
)
from airflow_ett.publish.request import Request
from airflow_ett.publish.trial import try_snapshot

_SCHEMA_VERSION = 2

_ADVICE = {
    errno.ENOSPC: "make room there",
    errno.EDQUOT: "make room there, or raise the quota",
    errno.EFBIG: "raise the limit for the size of a file",
    errno.EACCES: "give this user the right to write there",
    errno.EPERM: "give this user the right to write there",
    errno.EROFS: "choose a place that can be written to",
}


@dataclass(frozen=True, slots=True)
class Published:
    """A version that is visible in the registry.

    ``uri`` is where it lies, ``digest`` the SHA-256 of its weights' file, ``bytes`` the size of all
    of its files, ``cursor`` (global samples) its checkpoint's. ``latest`` says whether the
    registry's latest is this one now, ``existed`` that this call only found it whole, made before
    or meanwhile by another publisher. ``begin_ns`` and ``end_ns`` (UTC) are this call's.
    """

    name: str
    version: str
    uri: str
    registry: str
    digest: str
    bytes: int
    cursor: int
    latest: bool
    existed: bool
    begin_ns: int
    end_ns: int


def publish(request: Request) -> Published:
    """Publish a committed checkpoint's model as a version in a registry.

    The default version derives from the checkpoint and the transforms, so publishing one twice
    makes one version.

    Raises :class:`ConfigurationError` that names the parameter, and :class:`PublishError`, after
    which no broken version is visible; it says so where a whole one is, and only ``latest`` is not.
    """
    begin_ns = time.time_ns()
    try:
        source = _opened(request.checkpoint)
        registry = open_registry(request.registry, request.name)
        registry.sweep()
        version = request.version or _version(source, request)
        snapshot = registry.find(version)
        existed = snapshot is not None
        if snapshot is None:
            snapshot, existed = _make(registry, version, source, request)
        _require_same(snapshot, source, request)
    except OSError as error:
        what = f"{request.checkpoint} as {request.name} into {request.registry}"
        raise PublishError(f"{what}: {error}; {_advice(error)}") from error
    return Published(
        name=request.name,
        version=version,
        uri=snapshot.uri,
        registry=request.registry,
        digest=snapshot.digest,
        bytes=snapshot.bytes,
        cursor=source.cursor,
        latest=_point_latest(registry, snapshot, force=request.force_latest),
        existed=existed,
        begin_ns=begin_ns,
        end_ns=time.time_ns(),
    )


def _opened(uri: str) -> Checkpoint:
    try:
        return open_checkpoint(uri)
    except ConfigurationError as error:
        raise ConfigurationError("checkpoint", error.problem) from error
    except CheckpointError as error:
        raise _nothing(error) from error


def _verify(source: Checkpoint) -> None:
    try:
        verify(source)
    except CheckpointError as error:
        raise _nothing(error) from error


def _nothing(error: CheckpointError) -> PublishError:
    return PublishError(f"nothing to publish: {error}; choose another checkpoint")


def _version(source: Checkpoint, request: Request) -> str:
    transforms = "".join(f"-{name}" for name in request.transforms)
    return f"{source.cursor}-{source.digest[:8]}{transforms}"


def _require_same(snapshot: Snapshot, source: Checkpoint, request: Request) -> None:
    """Raise unless a version was made from this checkpoint, for this model, in this way."""
    made = snapshot.manifest
    if snapshot.source_digest != source.digest:
        what = f"from {made['source'].get('checkpoint')}, not from {source.uri}"
    elif (transforms := made.get("transforms", [])) != list(request.transforms):
        what = f"with transforms {transforms}, not {list(request.transforms)}"
    elif (factory := made.get("factory")) != request.model:
        what = f"for model {factory}, not {request.model}"
    else:
        return
    raise PublishError(f"{snapshot.uri} was published {what}; choose another version")


def _make(
    registry: Registry, version: str, source: Checkpoint, request: Request
) -> tuple[Snapshot, bool]:
    """Return the new snapshot, and whether another publisher made it meanwhile."""
    _verify(source)
    with registry.staging(version) as staged:
        try:
            _prepare(staged, version, source, request)
        except OSError as error:
            what = f"{source.uri} cannot be prepared in {staged.parent}"
            raise PublishError(f"{what}: {error}; {_advice(error)}") from error
        existed = not registry.reveal(staged, version)
    snapshot = registry.find(version)
    if snapshot is None:
        where = f"{request.registry}, model {request.name}"
        problem = f"version {version} was removed while it was being published; publish it again"
        raise PublishError(f"{where}: {problem}")
    return snapshot, existed


def _prepare(staged: Path, version: str, source: Checkpoint, request: Request) -> None:
    """Fill a folder with the version's files, tried, and its manifest."""
    from airflow_ett.publish.weights import write_weights  # torch is heavy, so only now

    count = write_weights(source, staged / WEIGHTS_FILE, cast=request.cast)
    told = try_snapshot(staged, request, source)
    manifest = {
        "v": _SCHEMA_VERSION,
        "name": request.name,
        "version": version,
        "source": {
            "checkpoint": source.uri,
            "digest": source.digest,
            "cursor": source.cursor,
            "saved_ns": source.manifest.created_ns,
            "job": source.job,
        },
        "training": dict(request.training),
        "factory": request.model,
        "transforms": list(request.transforms),
        "parameters": count,
        **told,
        "files": {path.name: _described(path) for path in sorted(staged.iterdir())},
        "created_ns": time.time_ns(),
    }
    (staged / MANIFEST_FILE).write_text(json.dumps(manifest, indent=1) + "\n")


def _described(path: Path) -> dict[str, Any]:
    digest = digest_file(path)
    return {"sha256": digest.sha256, "bytes": digest.size}


def _point_latest(registry: Registry, snapshot: Snapshot, *, force: bool) -> bool:
    try:
        return registry.point_latest(snapshot, force=force)
    except (OSError, PublishError) as error:
        advice = f"{_advice(error)}; " if isinstance(error, OSError) else ""
        raise PublishError(
            f"{snapshot.uri} is published and whole, but `latest` could not be moved: {error}; "
            f"{advice}then publish it again"
        ) from error


def _advice(error: OSError) -> str:
    return _ADVICE.get(error.errno or 0, "publish again once that is put right")
