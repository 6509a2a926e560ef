"""A checkpoint's metadata is a pickle of a stranger: it must not run anything."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp

from airflow_ett.errors import PublishError
from airflow_ett.publish import Request, publish
from airflow_ett.publish.tensors import read_tensors

pytestmark = pytest.mark.torch


class Payload:
    """Runs a command where it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.target}",)


def refused(site: Any, content: bytes, message: str) -> None:
    checkpoint = site.save()
    (checkpoint / ".metadata").write_bytes(content)
    site.commit(checkpoint)
    with pytest.raises(PublishError, match=message):
        publish(Request(**site.arguments(checkpoint)))
    assert site.versions == []


def test_a_payload_does_not_run(site: Any, tmp_path: Path) -> None:
    target = tmp_path / "ran"
    payload = pickle.dumps(Payload(target))
    refused(site, payload, r"\.metadata: cannot be read safely: .*system does not belong")
    assert not target.exists()
    pickle.loads(payload)
    assert target.exists(), "the payload itself is harmless, so the test proves nothing"


@pytest.mark.parametrize(
    "path", ["torch.hub\nload", "torch\nload", "builtins\neval", "torch\nfloat32.to_complex"]
)
def test_other_names_are_refused(site: Any, path: str) -> None:
    refused(site, f"c{path}\n.".encode(), "cannot be read safely")


@pytest.mark.parametrize("content", [b"", b"garbage", pickle.dumps({"a": 1}), pickle.dumps(None)])
def test_what_is_no_metadata_is_refused(site: Any, content: bytes) -> None:
    refused(site, content, r"\.metadata: cannot be read safely")


def test_files_beyond_the_manifest_are_not_opened(site: Any) -> None:
    checkpoint = site.save()
    with pytest.raises(PublishError, match=r"not the checkpoint's: \{'__0_0\.distcp'\}"):
        read_tensors(checkpoint, {".metadata"}, "model")


def test_byte_items_and_other_objects_are_not_read(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    target = tmp_path / "ran"
    state = {
        "model": {
            "weight": torch.ones(2),
            "bias": torch.zeros(1),
            "note": Payload(target),
        },
        "models": {"weight": torch.zeros(9)},
    }
    dcp.save(state, checkpoint_id=folder)
    files = {path.name for path in folder.iterdir()}
    tensors = read_tensors(folder, files, "model")
    assert sorted(tensors) == ["bias", "weight"]
    assert tensors["weight"].tolist() == [1.0, 1.0]
    assert not target.exists()


def test_a_checkpoint_without_a_model_is_named(site: Any) -> None:
    checkpoint = site.save()
    files = {path.name for path in checkpoint.iterdir()}
    with pytest.raises(PublishError, match="no tensors below 'ema'"):
        read_tensors(checkpoint, files, "ema")
