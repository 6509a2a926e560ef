"""A folder of compiled code as one content: whole files alone, in and out."""

from __future__ import annotations

import fcntl
import gzip
import io
import os
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_ett.trainer.caches import archive
from airflow_ett.trainer.caches.absence import Absent

_MOST = 1 << 20


@pytest.fixture
def compiled(tmp_path: Path) -> Path:
    """A folder as torch leaves it."""
    folder = tmp_path / "compiled"
    for name, content in {
        "ab/cabkey.main.cpp": b"code",
        "ab/cabkey.main.so": b"\x7fELF",
        "fxgraph/ru/fru/wkt": b"graph",
        "ab/.4711.1.tmp": b"draft",
        "triton/0/tmp.pid_1_2/kernel.ttir": b"draft",
        "locks/cabkey.lock": b"",
        "other.lock": b"",
    }.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (folder / "ab" / "cabkey.main.so").chmod(0o755)
    (folder / "link").symlink_to(tmp_path)
    (folder / "ab" / "link.so").symlink_to(folder / "ab" / "cabkey.main.so")
    return folder


@pytest.fixture
def target(tmp_path: Path) -> Path:
    folder = tmp_path / "target"
    folder.mkdir()
    return folder


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def pack(folder: Path, beside: bytes = b"") -> bytes:
    return archive.pack(folder, beside=beside, most=_MOST)[0]


def forged(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as tar:
        for member, content in members:
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return target.getvalue()


def test_whole_files_come_back_and_nothing_else(compiled: Path, target: Path) -> None:
    content, found = archive.pack(compiled, beside=b"", most=_MOST)
    assert archive.unpack(content, target, most=_MOST) == b""
    assert files(target) == {
        "ab/cabkey.main.cpp": b"code",
        "ab/cabkey.main.so": b"\x7fELF",
        "fxgraph/ru/fru/wkt": b"graph",
    }
    assert found == archive.sizes(target) == archive.sizes(compiled)
    modes = {p.name: p.stat().st_mode & 0o777 for p in (target / "ab").iterdir()}
    assert modes == {"cabkey.main.cpp": 0o600, "cabkey.main.so": 0o700}


def test_what_lies_beside_comes_back_apart(compiled: Path, target: Path) -> None:
    assert archive.unpack(pack(compiled, b"mega"), target, most=_MOST) == b"mega"
    assert archive.sizes(target) == archive.sizes(compiled)


def test_the_same_files_make_the_same_content(compiled: Path, target: Path) -> None:
    archive.unpack(pack(compiled), target, most=_MOST)
    assert pack(target) == pack(compiled)
    assert pack(target)[4:8] == bytes(4), "no time of day"


def test_the_paths_that_triton_notes_are_those_of_the_new_folder(
    compiled: Path, target: Path
) -> None:
    """With the old ones it finds no kernel, and torch takes them for complete."""
    group = compiled / "triton" / "0" / "hash" / "__grp__kernel.json"
    group.parent.mkdir()
    group.write_text(f'{{"child_paths": {{"kernel.cubin": "{group.parent}/kernel.cubin"}}}}')
    archive.unpack(pack(compiled), target, most=_MOST)
    moved = target / group.relative_to(compiled)
    assert moved.read_text() == group.read_text().replace(str(compiled), str(target))
    assert pack(target) == pack(compiled)


def test_what_is_there_stays(compiled: Path, target: Path) -> None:
    (target / "ab").mkdir()
    (target / "ab" / "cabkey.main.cpp").write_bytes(b"the user's")
    archive.unpack(pack(compiled), target, most=_MOST)
    assert files(target)["ab/cabkey.main.cpp"] == b"the user's"
    assert files(target)["ab/cabkey.main.so"] == b"\x7fELF"


def test_what_a_compiler_writes_just_now_is_left_out(compiled: Path) -> None:
    """A half-written library would be loaded, and end the training that finds it."""
    with (compiled / "locks" / "cabkey.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _, found = archive.pack(compiled, beside=b"", most=_MOST)
    assert list(found) == ["fxgraph/ru/fru/wkt"]
    assert archive.sizes(compiled) != found, "so it is kept next time"


def test_more_than_may_be_kept_is_refused(compiled: Path) -> None:
    with pytest.raises(Absent, match="13 bytes are more than the 12"):
        archive.pack(compiled, beside=b"", most=12)


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, link
    return made


@pytest.mark.parametrize(
    "bad",
    [
        member("../outside"),
        member("a/../../outside"),
        member("/outside"),
        member("link", tarfile.SYMTYPE, "/etc"),
        member("link", tarfile.LNKTYPE, "good"),
        member("device", tarfile.CHRTYPE),
        member("pipe", tarfile.FIFOTYPE),
    ],
    ids=lambda bad: f"{bad.name} {bad.type.decode()}",
)
def test_what_would_write_elsewhere_is_refused_as_a_whole(
    target: Path, bad: tarfile.TarInfo
) -> None:
    with pytest.raises(Absent, match="not trusted: it holds"):
        archive.unpack(forged((member("good"), b"x"), (bad, b"")), target, most=_MOST)
    assert list(target.iterdir()) == []


def test_a_size_below_zero_makes_no_room_for_more(target: Path) -> None:
    below = member("below")
    below.size = -2 * _MOST
    content = gzip.compress(below.tobuf(tarfile.GNU_FORMAT) + bytes(tarfile.RECORDSIZE))
    with pytest.raises(Absent, match="not trusted: it holds 'below'"):
        archive.unpack(content, target, most=_MOST)


def test_a_bomb_does_not_go_off(target: Path) -> None:
    bomb = forged((member("good"), b"x"), (member("bomb"), bytes(_MOST)))
    assert len(bomb) < _MOST / 100
    with pytest.raises(Absent, match="unpacked, it is larger than may be kept"):
        archive.unpack(bomb, target, most=_MOST)
    assert list(target.iterdir()) == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[: len(content) // 2],
        lambda content: b"",
        lambda content: b"no archive at all",
        lambda content: gzip.compress(b"no archive at all" * 100),
        lambda content: content[:40] + bytes([content[40] ^ 0xFF]) + content[41:],
    ],
    ids=["half", "empty", "text", "packed text", "a byte"],
)
def test_a_damaged_content_leaves_nothing(
    compiled: Path, target: Path, damage: Callable[[bytes], bytes]
) -> None:
    with pytest.raises(Absent, match="corrupt: it cannot be unpacked"):
        archive.unpack(damage(pack(compiled)), target, most=_MOST)
    assert list(target.iterdir()) == []


def test_what_a_killed_process_left_goes_and_what_another_one_unpacks_stays(
    compiled: Path, target: Path
) -> None:
    """A folder of the user's own is swept by nobody else, and may be shared by several hosts."""
    for name, age_s in (("killed", archive.LEFT_OVER_S + 60), ("at-work", 60)):
        (target / f".draft-{name}").mkdir()
        os.utime(target / f".draft-{name}", (time.time() - age_s,) * 2)
    archive.unpack(pack(compiled), target, most=_MOST)
    assert [path.name for path in target.glob(".*")] == [".draft-at-work"]


def test_an_interrupted_unpacking_shows_nothing(
    compiled: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, seen = pack(compiled), []
    copy = archive.shutil.copyfileobj

    def watch(source: io.BufferedIOBase, file: io.BufferedIOBase) -> None:
        seen.append([path for path in target.iterdir() if not path.name.startswith(".")])
        copy(source, file)
        if len(seen) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(archive.shutil, "copyfileobj", watch)
    with pytest.raises(KeyboardInterrupt):
        archive.unpack(content, target, most=_MOST)
    assert seen == [[], [], []]
    assert list(target.iterdir()) == []
