"""The steps of publishing: verify, read, write, try, reveal, point ``latest`` at it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_ett.checkpoints import Checkpoint, open_checkpoint, verify
from airflow_ett.checkpoints.layout import MARKER
from airflow_ett.errors import CheckpointError, ConfigurationError, PublishError
from airflow_ett.publish.registries import (
    MANIFEST_FILE,
    WEIGHTS_FILE,
    Registry,
    Snapshot,
    open_registry,
)
from airflow_ett.publish.registries.folder import file_digest
from airflow_ett.publish.request import Request

_MODEL = "model"
"""The name under which the trainer gave the model to its checkpointer."""

_SCHEMA_VERSION = 2
_RESULT_FILE = "check.json"


@dataclass(frozen=True, slots=True)
class _Source:
    """A verified checkpoint; ``digest`` is the SHA-256 of its manifest."""

    checkpoint: Checkpoint
    digest: str

    def described(self) -> dict[str, Any]:
        """What the snapshot's manifest says of it."""
        return {
            "checkpoint": self.checkpoint.uri,
            "digest": self.digest,
            "cursor": self.checkpoint.cursor,
            "saved_ns": self.checkpoint.manifest.created_ns,
            "job": self.checkpoint.manifest.job,
        }


@dataclass(frozen=True, slots=True)
class Published:
    """A version that is visible in the registry.

    ``uri`` is its folder, ``digest`` the SHA-256 and ``bytes`` the size of its weights' file.
    ``begin_ns`` and ``end_ns`` (UTC) are this call's; ``existed`` says that it only found the
    version whole, made before or meanwhile by another publisher.
    """

    version: str
    uri: str
    digest: str
    begin_ns: int
    end_ns: int
    bytes: int
    existed: bool


def publish(request: Request) -> Published:
    """Publish a committed checkpoint's model as a version in a registry.

    The default version derives from the checkpoint and the transforms, so publishing one twice
    makes one version.

    Raises :class:`ConfigurationError` that names the parameter, and :class:`PublishError`, after
    which nothing has become visible.
    """
    begin_ns = time.time_ns()
    try:
        source = _verified(request.checkpoint)
        registry = open_registry(request.registry, request.name)
        registry.sweep()
        version = request.version or _version(source, request)
        snapshot = registry.find(version)
        existed = snapshot is not None
        if snapshot is None:
            snapshot, existed = _make(registry, version, source, request)
        _require_same(snapshot, source, request)
        registry.point_latest(snapshot, force=request.force_latest)
    except OSError as error:
        what = f"{request.checkpoint} as {request.name} into {request.registry}"
        raise PublishError(f"{what}: {error}") from error
    return Published(
        version=version,
        uri=snapshot.uri,
        digest=snapshot.digest,
        begin_ns=begin_ns,
        end_ns=time.time_ns(),
        bytes=snapshot.bytes,
        existed=existed,
    )


def _version(source: _Source, request: Request) -> str:
    transforms = "".join(f"-{name}" for name in request.transforms)
    return f"{source.checkpoint.cursor}-{source.digest[:8]}{transforms}"


def _require_same(snapshot: Snapshot, source: _Source, request: Request) -> None:
    """Raise unless a version was made from this checkpoint, and with these transforms."""
    other = snapshot.manifest
    if snapshot.source_digest != source.digest:
        what = f"from {other['source']['checkpoint']}, not from {source.checkpoint.uri}"
    elif (made := list(other.get("transforms", ()))) != list(request.transforms):
        what = f"with transforms {made}, not {list(request.transforms)}"
    else:
        return
    raise PublishError(f"{snapshot.uri} was published {what}; choose another version")


def _verified(uri: str) -> _Source:
    try:
        checkpoint = open_checkpoint(uri)
        verify(checkpoint)
    except ConfigurationError as error:
        raise ConfigurationError("checkpoint", error.problem) from error
    except (CheckpointError, OSError) as error:
        raise PublishError(f"nothing to publish: {error}") from error
    return _Source(checkpoint, (checkpoint.path / MARKER).read_text().strip())


def _make(
    registry: Registry, version: str, source: _Source, request: Request
) -> tuple[Snapshot, bool]:
    """Return the new snapshot, and whether another publisher made it meanwhile."""
    with registry.staging(version) as staged:
        weights = staged / WEIGHTS_FILE
        count = _write_weights(source.checkpoint, weights)
        manifest = {
            "v": _SCHEMA_VERSION,
            "name": request.name,
            "version": version,
            "source": source.described(),
            "training": dict(request.training),
            "factory": request.model,
            "transforms": list(request.transforms),
            "parameters": count,
            "check": _try(weights, request.model, request.golden),
            "files": {
                WEIGHTS_FILE: {"sha256": file_digest(weights), "bytes": weights.stat().st_size}
            },
            "created_ns": time.time_ns(),
        }
        (staged / MANIFEST_FILE).write_text(json.dumps(manifest, indent=1) + "\n")
        existed = not registry.reveal(staged, version)
    snapshot = registry.find(version)
    if snapshot is None:
        where = f"{request.registry}, model {request.name}"
        raise PublishError(f"{where}: version {version} was removed while it was being published")
    return snapshot, existed


def _write_weights(source: Checkpoint, target: Path) -> int:
    """Write the model's tensors as safetensors; return the number of values."""
    from safetensors.torch import save_file  # torch and safetensors are heavy, so only now

    from airflow_ett.publish.tensors import read_tensors

    tensors = read_tensors(source.path, source.manifest.files.keys(), _MODEL)
    save_file(tensors, target)
    return sum(tensor.numel() for tensor in tensors.values())


def _try(weights: Path, model: str, golden: str | None) -> dict[str, Any]:
    """Load and score the snapshot in a fresh process; return what was tried."""
    result = weights.with_name(_RESULT_FILE)
    command = [sys.executable, "-m", "airflow_ett.publish.check", "--weights", str(weights)]
    command += ["--model", model, "--result", str(result)]
    if golden is not None:
        command += ["--golden", golden]
    status = subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode
    if not result.exists():
        raise PublishError(f"the process that tried {model} ended with {status} and no result")
    outcome: dict[str, Any] = json.loads(result.read_bytes())
    result.unlink()
    if "error" in outcome:
        raise PublishError(f"the snapshot does not work with {model}: {outcome['error']}")
    tried: dict[str, Any] = outcome["ok"]
    return tried
