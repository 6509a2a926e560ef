"""The ranks of a node share a folder, restore it once, and leave nothing behind."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from airflow_ett.trainer.caches import scratch
from airflow_ett.trainer.caches.scratch import Restored, Scratch

_DONE = Restored("used", "saved 1 s ago", 10, {"a": 1})


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path / f"airflow-ett-{os.getuid()}" / "compiled"


def test_one_restores_and_the_others_read_what_came_of_it(root: Path) -> None:
    first, second = Scratch("one"), Scratch("one")
    assert first.inductor == second.inductor
    assert first.once(lambda: _DONE, within_s=1) == _DONE
    assert second.once(lambda: pytest.fail("again"), within_s=1) == _DONE


def test_the_others_wait_for_the_one(root: Path) -> None:
    begun, may_end, results = threading.Event(), threading.Event(), []

    def restore() -> Restored:
        begun.set()
        may_end.wait(10)
        return _DONE

    first, second = Scratch("one"), Scratch("one")
    slow = threading.Thread(target=lambda: results.append(first.once(restore, within_s=1)))
    slow.start()
    begun.wait(10)
    with pytest.raises(TimeoutError, match="restored is held by another process for more than 0 s"):
        second.once(lambda: pytest.fail("meanwhile"), within_s=0)
    may_end.set()
    assert second.once(lambda: pytest.fail("again"), within_s=10) == _DONE
    slow.join()
    assert results == [_DONE]


def test_where_the_first_one_fails_the_next_one_restores(root: Path) -> None:
    scratch = Scratch("one")
    with pytest.raises(ZeroDivisionError):
        scratch.once(lambda: 1 / 0, within_s=1)  # type: ignore[arg-type, return-value]
    assert Scratch("one").once(lambda: _DONE, within_s=1) == _DONE


def test_the_last_one_removes_the_folder(root: Path) -> None:
    first, second, other = Scratch("one"), Scratch("one"), Scratch("two")
    first.leave()
    assert second.inductor.is_dir()
    second.leave()
    assert {path.name for path in root.iterdir()} == {"lock", "two", "two.users"}
    other.leave()
    assert [path.name for path in root.iterdir()] == ["lock"]


def test_what_a_killed_process_leaves_goes_with_the_next_one(root: Path) -> None:
    code = """
import os, signal
from airflow_ett.trainer.caches.scratch import Scratch
(Scratch("killed").inductor / "kernel.so").write_bytes(b"half")
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert (root / "killed" / "inductor" / "kernel.so").exists()
    Scratch("next")
    assert {path.name for path in root.iterdir()} == {"lock", "next", "next.users"}


def test_a_child_that_inherited_the_locks_holds_up_nobody(root: Path) -> None:
    """A loader's workers are forked at any time, and live for as long as the training."""
    inherited = []
    flock = fcntl.flock

    def fork(file: Any, operation: int) -> None:
        flock(file, operation)
        inherited.append(os.dup(file if isinstance(file, int) else file.fileno()))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scratch.fcntl, "flock", fork)
        made = Scratch("one")
        made.once(lambda: _DONE, within_s=1)
    patched = Scratch("one")
    assert patched.once(lambda: pytest.fail("again"), within_s=1) == _DONE
    made.leave()
    patched.leave()
    assert [path.name for path in root.iterdir()] == ["lock"]
    for number in inherited:
        os.close(number)


def test_a_process_that_stands_still_is_not_waited_for(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "_ALONE_S", 0)
    made = Scratch("one")
    with (root / "lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(TimeoutError, match="lock is held by another process for more than 0 s"):
            Scratch("two")
        with pytest.raises(TimeoutError):
            made.leave()


def test_nobody_turns_it_to_a_folder_of_the_users(root: Path, tmp_path: Path) -> None:
    """Where others may make links, as in ``/tmp``: what nobody holds there would be removed."""
    mine = tmp_path / "project"
    (mine / "compiled" / "precious").mkdir(parents=True)
    root.parent.symlink_to(mine)
    with pytest.raises(PermissionError, match="is a link"):
        Scratch("one")
    assert (mine / "compiled" / "precious").exists()


def test_a_folder_that_others_can_write_is_refused(root: Path) -> None:
    Scratch("one").leave()
    root.chmod(0o777)
    with pytest.raises(PermissionError, match="others can write"):
        Scratch("one")
