"""Versions as the publisher stages them, without a model: to a registry the weights are bytes."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from airflow_ett.publish.registries import Registry, Snapshot


def fill(staged: Path, version: str, *, content: bytes = b"weights", saved_ns: int = 1) -> None:
    """Fill a folder with a version's weights and its manifest."""
    (staged / "model.safetensors").write_bytes(content)
    told = {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    manifest = {
        "v": 2,
        "name": "toy",
        "version": version,
        "source": {"checkpoint": "/c", "digest": "d", "cursor": 640, "saved_ns": saved_ns},
        "files": {"model.safetensors": told},
    }
    (staged / "manifest.json").write_text(json.dumps(manifest))


def published(registry: Registry, version: str, **how: Any) -> Snapshot:
    """Publish a version; it is the first of its name."""
    with registry.staging(version) as staged:
        fill(staged, version, **how)
        assert registry.reveal(staged, version)
    snapshot = registry.find(version)
    assert snapshot is not None
    return snapshot
