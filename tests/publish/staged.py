"""Versions as the publisher stages them, without a model: to a registry the weights are bytes."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

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


def deny(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    """Let a file be another user's: it can be read here."""
    opened = os.open

    def denied(path: Any, flags: int, *mode: int, **how: Any) -> int:
        if Path(path) == file and flags & (os.O_RDWR | os.O_WRONLY):
            raise PermissionError(f"not yours: {path}")
        return opened(path, flags, *mode, **how)

    monkeypatch.setattr(os, "open", denied)
