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
from airflow_ett.publish.registry import (
    MANIFEST_FILE,
    MODEL_FILE,
    Registry,
    Snapshot,
    file_digest,
)

_MODEL = "model"
"""The name under which the trainer gave the model to its checkpointer."""

_SCHEMA_VERSION = 1
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


def publish(
    *,
    checkpoint: str,
    model: str,
    registry: str,
    name: str,
    version: str | None = None,
    golden: str | None = None,
) -> Published:
    """Publish a committed checkpoint's model as a version in a registry folder.

    ``model`` and ``golden`` are ``pkg.module:function``: the first returns the model, the second
    the inputs to try it with (a tensor, a tuple or a mapping of tensors; by default those of
    ``example_batch`` in the model's module). The default version derives from the checkpoint, so
    publishing one twice makes one version.

    Raises :class:`ConfigurationError` that names the parameter, and :class:`PublishError`, after
    which nothing has become visible.
    """
    begin_ns = time.time_ns()
    _require_function("model", model)
    if golden is not None:
        _require_function("golden", golden)
    try:
        source = _verified(checkpoint)
        shelf = Registry(Path(registry), name)
        shelf.sweep()
        wanted = version or f"{source.checkpoint.cursor}-{source.digest[:8]}"
        snapshot = shelf.find(wanted)
        existed = snapshot is not None
        if snapshot is None:
            snapshot, existed = _make(shelf, wanted, source, model, golden)
        if snapshot.source_digest != source.digest:
            other = snapshot.manifest["source"]["checkpoint"]
            raise PublishError(
                f"{snapshot.folder} was published from {other}, not from {source.checkpoint.uri}; "
                "choose another version"
            )
        shelf.point_latest(snapshot)
    except OSError as error:
        raise PublishError(f"{checkpoint} as {name} into {registry}: {error}") from error
    return Published(
        version=wanted,
        uri=str(snapshot.folder),
        digest=snapshot.digest,
        begin_ns=begin_ns,
        end_ns=time.time_ns(),
        bytes=snapshot.bytes,
        existed=existed,
    )


def _require_function(parameter: str, text: str) -> None:
    module, _, function = text.partition(":")
    if not (all(part.isidentifier() for part in module.split(".")) and function.isidentifier()):
        raise ConfigurationError(parameter, f"{text!r} is not of the form pkg.module:function")


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
    shelf: Registry, version: str, source: _Source, model: str, golden: str | None
) -> tuple[Snapshot, bool]:
    """Return the new snapshot, and whether another publisher made it meanwhile."""
    with shelf.staging(version) as staged:
        weights = staged / MODEL_FILE
        count = _write_weights(source.checkpoint, weights)
        manifest = {
            "v": _SCHEMA_VERSION,
            "name": shelf.folder.name,
            "version": version,
            "source": source.described(),
            "factory": model,
            "parameters": count,
            "check": _try(weights, model, golden),
            "files": {
                MODEL_FILE: {"sha256": file_digest(weights), "bytes": weights.stat().st_size}
            },
            "created_ns": time.time_ns(),
        }
        (staged / MANIFEST_FILE).write_text(json.dumps(manifest, indent=1) + "\n")
        existed = not shelf.reveal(staged, version)
    snapshot = shelf.find(version)
    if snapshot is None:
        raise PublishError(f"{shelf.folder / version} was removed while it was being published")
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
