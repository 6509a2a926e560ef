"""What is executed is read only where nobody else can have written it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_ett.trainer.caches import trust
from airflow_ett.trainer.caches.trust import Untrusted


@pytest.fixture
def give_away(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """A function after which a path belongs to another user."""

    def give_away(path: Path) -> None:
        if os.getuid() == 0:
            os.chown(path, 4711, 4711)
        else:
            monkeypatch.setattr(os, "getuid", lambda: 4711)

    return give_away


def test_a_folder_of_ones_own_is_trusted_and_made_for_oneself_alone(tmp_path: Path) -> None:
    folder = trust.make(tmp_path / "a" / "b")
    assert folder == trust.check(folder) == (tmp_path / "a" / "b").resolve()
    assert [path.stat().st_mode & 0o777 for path in (folder, folder.parent)] == [0o700, 0o700]


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777])
def test_a_folder_that_others_write_is_refused_with_its_mode(tmp_path: Path, mode: int) -> None:
    folder = trust.make(tmp_path / "a")
    folder.chmod(mode)
    with pytest.raises(
        Untrusted, match=rf"others can write to .*/a \(mode {mode:04o}\): chmod go-w"
    ):
        trust.check(folder)
    with pytest.raises(Untrusted, match="others can write"):
        trust.make(folder)


def test_a_folder_above_counts_unless_it_is_sticky(tmp_path: Path) -> None:
    folder = trust.make(tmp_path / "shared" / "mine")
    folder.parent.chmod(0o777)
    with pytest.raises(Untrusted, match=r"shared \(mode 0777\): chmod go-w or \+t"):
        trust.check(folder)
    folder.parent.chmod(0o1777)
    assert trust.check(folder) == folder.resolve()


def test_a_folder_of_somebody_else_is_refused(
    tmp_path: Path, give_away: Callable[[Path], None]
) -> None:
    folder = trust.make(tmp_path / "a")
    give_away(folder)
    with pytest.raises(Untrusted, match=r"belongs to somebody else \(uid \d+\)"):
        trust.check(folder)


def test_a_link_is_judged_by_where_it_leads(tmp_path: Path) -> None:
    """What comes back has no links: whoever may turn one turns nothing any more."""
    good, bad = trust.make(tmp_path / "good"), trust.make(tmp_path / "bad")
    bad.chmod(0o777)
    link = tmp_path / "link"
    link.symlink_to(good)
    assert trust.check(link / ".") == good.resolve()
    link.unlink()
    link.symlink_to(bad)
    with pytest.raises(Untrusted, match="bad"):
        trust.check(link)


def test_there_is_no_trust_in_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        trust.check(tmp_path / "none")
    with pytest.raises(FileNotFoundError):
        trust.read(tmp_path / "none")


def test_a_file_is_judged_like_a_folder(tmp_path: Path, give_away: Callable[[Path], None]) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"content")
    file.chmod(0o644)
    assert trust.read(file) == b"content"
    file.chmod(0o664)
    with pytest.raises(Untrusted, match=r"others can write to .*file \(mode 0664\)"):
        trust.read(file)
    file.chmod(0o600)
    link = tmp_path / "link"
    link.symlink_to(file)
    with pytest.raises(Untrusted, match="link is a link"):
        trust.read(link)
    give_away(file)
    with pytest.raises(Untrusted, match="belongs to somebody else"):
        trust.read(file)


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(Untrusted, match="is no file"):
        trust.read(tmp_path / "pipe")
