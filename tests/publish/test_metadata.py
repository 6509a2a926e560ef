"""A checkpoint's metadata is a pickle of a stranger: it must not run anything, nor lie."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp

from airflow_ett.errors import PublishError
from airflow_ett.publish.metadata import Chunk, stored_tensors
from airflow_ett.publish.weights import write_weights
from tests.publish.sharded import committed, grid, save_sharded

pytestmark = pytest.mark.torch


class Payload:
    """Runs a command where it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.target}",)


def refused(folder: Path, content: bytes, message: str) -> None:
    save_sharded(folder / "c", {"w": torch.ones(2)})
    (folder / "c" / ".metadata").write_bytes(content)
    with pytest.raises(PublishError, match=message):
        write_weights(committed(folder / "c"), folder / "w", cast=None)
    assert not (folder / "w").exists()


def test_a_payload_does_not_run(tmp_path: Path) -> None:
    target = tmp_path / "ran"
    payload = pickle.dumps(Payload(target))
    refused(tmp_path, payload, r"\.metadata: cannot be read safely: .*system does not belong")
    assert not target.exists()
    pickle.loads(payload)
    assert target.exists(), "the payload itself is harmless, so the test proves nothing"


@pytest.mark.parametrize(
    "path", ["torch.hub\nload", "torch\nload", "builtins\neval", "torch\nfloat32.to_complex"]
)
def test_other_names_are_refused(tmp_path: Path, path: str) -> None:
    refused(tmp_path, f"c{path}\n.".encode(), "cannot be read safely")


def test_a_payload_cannot_change_what_paths_do(tmp_path: Path) -> None:
    payload = b"cpathlib\nPosixPath\nN}X\x06\x00\x00\x00parentK\x01s\x86b."
    refused(tmp_path, payload, "holds type instead of Metadata")
    assert tmp_path.parent != 1


@pytest.mark.parametrize("content", [b"", b"garbage", pickle.dumps({"a": 1}), pickle.dumps(None)])
def test_what_is_no_metadata_is_refused(tmp_path: Path, content: bytes) -> None:
    refused(tmp_path, content, r"\.metadata: cannot be read safely")


def test_a_checkpoint_without_metadata_is_named(tmp_path: Path) -> None:
    save_sharded(tmp_path / "c", {"w": torch.ones(2)})
    (tmp_path / "c" / ".metadata").unlink()
    with pytest.raises(PublishError, match=r"\.metadata: missing from the checkpoint's manifest"):
        write_weights(committed(tmp_path / "c"), tmp_path / "w", cast=None)


def test_files_beyond_the_manifest_are_not_opened(tmp_path: Path) -> None:
    save_sharded(tmp_path / "c", {"w": torch.ones(2)})
    with pytest.raises(PublishError, match=r"not the checkpoint's: \{'__0_0\.distcp'\}"):
        stored_tensors(tmp_path / "c", {".metadata"}, "model")


def test_byte_items_and_other_objects_are_not_read(tmp_path: Path) -> None:
    target = tmp_path / "ran"
    state = {
        "model": {
            "weight": torch.ones(2),
            "bias": torch.zeros(1),
            "note": Payload(target),
        },
        "models": {"weight": torch.zeros(9)},
    }
    dcp.save(state, checkpoint_id=tmp_path / "c", no_dist=True)
    stored = stored_tensors(tmp_path / "c", committed(tmp_path / "c").files.keys(), "model")
    assert sorted(stored) == ["bias", "weight"]
    assert stored["weight"][:2] == (torch.float32, (2,))
    assert not target.exists()


def test_a_checkpoint_without_a_model_is_named(tmp_path: Path) -> None:
    files = save_sharded(tmp_path / "c", {"w": torch.ones(2)}).files.keys()
    with pytest.raises(PublishError, match="no tensors below 'ema'"):
        stored_tensors(tmp_path / "c", files, "ema")


def test_it_says_where_each_chunk_lies(tmp_path: Path) -> None:
    source = save_sharded(tmp_path / "c", {"w": torch.ones(4, 2)}, {"w": grid((4, 2), [[3], []])})
    (stored,) = stored_tensors(source.path, source.files.keys(), "model").values()
    first, second = stored.chunks
    assert first == Chunk("__0_0.distcp", 0, source.files["__0_0.distcp"].size, (0, 0), (3, 2))
    assert second[:2] + second[3:] == ("__1_0.distcp", 0, (3, 0), (1, 2))
    assert stored.values == 8


def chunk_gone(metadata: Any) -> None:
    metadata.state_dict_metadata["model.w"].chunks.pop()


def place_gone(metadata: Any) -> None:
    metadata.storage_data.popitem()


def outside(metadata: Any) -> None:
    metadata.state_dict_metadata["model.w"].chunks[0].sizes = torch.Size([5, 2])


def negative(metadata: Any) -> None:
    metadata.state_dict_metadata["model.w"].chunks[0].offsets = torch.Size([-1, 0])


def flat(metadata: Any) -> None:
    metadata.state_dict_metadata["model.w"].chunks[0].sizes = torch.Size([6])


def no_dtype(metadata: Any) -> None:
    metadata.state_dict_metadata["model.w"].properties.dtype = "float32"


def compressed(metadata: Any) -> None:
    next(iter(metadata.storage_data.values())).transform_descriptors = ["stream.zstd"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (chunk_gone, r"model\.w has chunks of 6 values, and 8 by its shape"),
        (place_gone, r"model\.w has a chunk at \(3, 0\) that lies in no file"),
        (outside, r"model\.w has a chunk of \(5, 2\) at \(0, 0\), outside of \(4, 2\)"),
        (negative, r"model\.w has a chunk of \(3, 2\) at \(-1, 0\), outside"),
        (flat, "cannot be read safely"),
        (no_dtype, r"model\.w is of 'float32', which is no dtype"),
        (compressed, r"model\.w was saved with \['stream\.zstd'\]; save it without"),
    ],
)
def test_metadata_that_contradicts_itself_is_refused(
    tmp_path: Path, change: Callable[[Any], None], message: str
) -> None:
    source = save_sharded(tmp_path / "c", {"w": torch.ones(4, 2)}, {"w": grid((4, 2), [[3], []])})
    path = tmp_path / "c" / ".metadata"
    metadata = pickle.loads(path.read_bytes())
    change(metadata)
    path.write_bytes(pickle.dumps(metadata))
    with pytest.raises(PublishError, match=message):
        stored_tensors(source.path, source.files.keys(), "model")
