"""Holds: a reader keeps a trainer from removing a checkpoint, for a while and not for ever."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_ett.checkpoints import Checkpoint, commit, folder_name, holds, list_checkpoints, retain
from airflow_ett.errors import CheckpointError
from airflow_ett.events import AttemptId

ATTEMPT = AttemptId(1)


@pytest.fixture
def save(tmp_path: Path) -> Callable[[int], Checkpoint]:
    def make(cursor: int) -> Checkpoint:
        path = tmp_path / folder_name(cursor, ATTEMPT)
        path.mkdir()
        (path / "weights").write_text(str(cursor))
        return commit(path, job="j", attempt=ATTEMPT, epoch=1, cursor=cursor)

    return make


def cursors(root: Path) -> list[int]:
    return [checkpoint.cursor for checkpoint in list_checkpoints(str(root))]


def test_a_held_checkpoint_stays_until_it_is_released(tmp_path: Path, save: Any) -> None:
    held = save(1)
    holds.take(held.uri, "reader")
    for cursor in (2, 3, 4):
        save(cursor)
    retain(tmp_path, keep=2, attempt=ATTEMPT)
    assert cursors(tmp_path) == [1, 3, 4]
    holds.release(held.uri, "reader")
    retain(tmp_path, keep=2, attempt=ATTEMPT)
    assert cursors(tmp_path) == [3, 4]


def test_each_of_several_holders_holds_it(save: Any) -> None:
    held = save(1)
    holds.take(held.uri, "a")
    holds.take(held.uri, "b")
    holds.release(held.uri, "a")
    assert holds.is_held(held.path)
    holds.release(held.uri, "b")
    assert not holds.is_held(held.path)


def test_a_full_disk_goes_first(tmp_path: Path, save: Any) -> None:
    holds.take(save(1).uri, "reader")
    save(2)
    retain(tmp_path, keep=1, attempt=ATTEMPT)
    assert cursors(tmp_path) == [2]


def test_a_holder_that_died_does_not_hold_for_ever(
    save: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = save(1)
    monkeypatch.setattr(holds, "LONGEST_S", -1.0)
    holds.take(held.uri, "reader")
    assert not holds.is_held(held.path)


@pytest.mark.parametrize("content", [b"", b"soon", b"\xff"])
def test_a_torn_hold_holds_nothing(save: Any, content: bytes) -> None:
    held = save(1)
    (held.path / ".held-reader").write_bytes(content)
    assert not holds.is_held(held.path)


def test_what_has_gone_cannot_be_held(tmp_path: Path, save: Any) -> None:
    with pytest.raises(CheckpointError, match="no such folder"):
        holds.take(str(tmp_path / "none"), "reader")
    held = save(1)
    (held.path / "COMMITTED").unlink()
    with pytest.raises(CheckpointError, match="removed by its trainer"):
        holds.take(held.uri, "reader")
    assert list(held.path.glob(".held-*")) == []
