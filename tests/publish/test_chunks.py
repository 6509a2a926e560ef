"""A chunk is read from its part of a file: never more at once than a remote file may hold."""

from __future__ import annotations

import errno
import io
from pathlib import Path
from typing import Any

import pytest
import torch

from airflow_ett.publish import chunks
from airflow_ett.publish.metadata import Chunk
from tests.publish.sharded import numbered

pytestmark = pytest.mark.torch

LEAST = 4096
"""Torch looks for the archive's directory in as much at the end."""


class Recorded(io.BytesIO):
    """Knows how much was asked for at once."""

    most = 0

    def readinto(self, buffer: Any) -> int:
        self.most = max(self.most, len(buffer))
        return super().readinto(buffer)


def stream(tensor: Any) -> tuple[Recorded, Chunk]:
    """Return a file with a tensor between other things, and where it is."""
    file = Recorded()
    file.write(b"before")
    torch.save(tensor, file)
    end = file.tell()
    file.write(b"after")
    shape = tuple(tensor.shape)
    return file, Chunk("file", 6, end - 6, (0,) * len(shape), shape)


def test_a_great_one_is_read_little_by_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "_AT_ONCE", LEAST)
    tensor = numbered((100, 100))
    file, chunk = stream(tensor)
    assert torch.equal(chunks.load_chunk(file, Path("file"), chunk, tensor.dtype), tensor)
    assert file.most == LEAST


def test_a_small_one_is_read_with_one_request() -> None:
    tensor = numbered((100, 100))
    file, chunk = stream(tensor)
    assert torch.equal(chunks.load_chunk(file, Path("file"), chunk, tensor.dtype), tensor)
    assert file.most == 0
    assert file.tell() == chunk.begin + chunk.length


@pytest.mark.parametrize("at_once", [LEAST, 8 << 20])
def test_an_outage_is_no_damage(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(chunks, "_AT_ONCE", at_once)
    file, chunk = stream(numbered((100, 100)))

    def away(*arguments: Any) -> int:
        raise OSError(errno.EIO, "SlowDown")

    monkeypatch.setattr(file, "read", away, raising=False)
    monkeypatch.setattr(file, "readinto", away, raising=False)
    with pytest.raises(OSError, match="SlowDown"):
        chunks.load_chunk(file, Path("file"), chunk, torch.float32)
