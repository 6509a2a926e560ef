"""Files that appear whole, for one of several."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from airflow_ett.events.exclusive import draft, freshen, link


def test_one_of_many_makes_it_and_nothing_is_left(tmp_path: Path) -> None:
    def make(number: int) -> bool:
        with draft(tmp_path, f"{number}".encode()) as finished:
            return link(finished, tmp_path / "claim")

    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(make, range(32)))
    assert made.count(True) == 1
    assert (tmp_path / "claim").read_text() == str(made.index(True))
    assert [path.name for path in tmp_path.iterdir()] == ["claim"]


def test_others_may_read_it(tmp_path: Path) -> None:
    with draft(tmp_path, b"x") as finished:
        assert stat.S_IMODE(finished.stat().st_mode) == 0o644


def test_a_look_makes_and_leaves_nothing_and_waits_for_no_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(handle: int) -> None:
        raise AssertionError("synced")

    os.utime(tmp_path, (0, 0))
    monkeypatch.setattr(os, "fsync", never)
    freshen(tmp_path)
    assert tmp_path.stat().st_mtime > 0
    assert list(tmp_path.iterdir()) == []
    freshen(tmp_path / "none")
