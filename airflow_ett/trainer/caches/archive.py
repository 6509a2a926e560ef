"""A folder of compiled code as one content and back: whole files alone, and nothing else."""

from __future__ import annotations

import fcntl
import gzip
import io
import shutil
import stat
import tarfile
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

from airflow_ett.trainer.caches.absence import Absent

LEFT_OVER_S = 3600.0
"""Age at which a draft was left over by a process that was killed."""

_BESIDE = ".megacache"
_TRITON_GROUP = "__grp__"
_FOLDER = b"{the folder}"
_LOCKS = "locks"
_TRITON_DRAFT = "tmp.pid_"
_DRAFT = ".draft-"
_LEVEL = 1  # a higher one takes longer, for an eighth less
_AT_ONCE = 1 << 20  # each piece waits for the interpreter, which the training has


def sizes(folder: Path) -> dict[str, int]:
    """Return the files that are worth keeping, with their sizes, by their paths in the folder.

    What somebody still writes and what only matters to who is at work there is left out: drafts,
    locks, links.
    """
    return dict(_found(folder, folder))


def pack(folder: Path, *, beside: bytes, most: int) -> tuple[bytes, dict[str, int]]:
    """Return a folder's files as one content, and which they are; the same for the same files.

    Compilers may be at work there: what torch has locked meanwhile is left out. ``beside`` is kept
    along with them. Raises :class:`Absent` where they have more than ``most`` bytes, ``OSError``.
    """
    found = sizes(folder)
    unfinished = _locked(folder)  # after the listing: what was complete then, remains so
    found = {name: size for name, size in found.items() if _key(name) not in unfinished}
    if sum(found.values()) > most:
        raise Absent(f"{sum(found.values())} bytes are more than the {most} that may be kept")
    target = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=target, mode="wb", compresslevel=_LEVEL, mtime=0) as packed,
        tarfile.TarFile(fileobj=packed, mode="w", copybufsize=_AT_ONCE) as tar,
    ):
        if beside:
            _add(tar, _BESIDE, beside, executable=False)
        for name in found:
            path = folder / name
            content = path.read_bytes()
            if _names_others(name):
                content = content.replace(bytes(folder), _FOLDER)
            _add(tar, name, content, executable=bool(path.stat().st_mode & stat.S_IXUSR))
    return target.getvalue(), found


def unpack(content: bytes, folder: Path, *, most: int) -> bytes:
    """Make in a folder the files that :func:`pack` found, but for those that are there.

    They appear one by one and whole, once all of them could be read. Returns what was kept beside
    them. Raises :class:`Absent` for a content that is none, that would write elsewhere, or more
    than ``most`` bytes; ``OSError``.
    """
    _remove_left_over(folder)
    draft = Path(tempfile.mkdtemp(prefix=_DRAFT, dir=folder))
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as tar:
            _extract(tar, draft, most)
        for name in sizes(draft):
            target = folder / name
            if _names_others(name):
                text = (draft / name).read_bytes()
                (draft / name).write_bytes(text.replace(_FOLDER, bytes(folder)))
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists():
                (draft / name).replace(target)
        return (draft / _BESIDE).read_bytes() if (draft / _BESIDE).exists() else b""
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise Absent(f"corrupt: it cannot be unpacked ({error})") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _remove_left_over(folder: Path) -> None:
    for draft in folder.glob(f"{_DRAFT}*"):
        with suppress(FileNotFoundError):  # another process removes it, too
            if time.time() - draft.stat().st_mtime > LEFT_OVER_S:
                shutil.rmtree(draft, ignore_errors=True)


def _found(folder: Path, top: Path) -> Iterator[tuple[str, int]]:
    for path in sorted(folder.iterdir()):
        draft = path.name.startswith((".", _TRITON_DRAFT)) or path.suffix in (".lock", ".tmp")
        if draft or path == top / _LOCKS or path.is_symlink():
            continue
        with suppress(FileNotFoundError):  # a draft that was complete meanwhile
            if path.is_dir():
                yield from _found(path, top)
            elif path.is_file():
                yield str(path.relative_to(top)), path.stat().st_size


def _locked(folder: Path) -> set[str]:
    """Return the keys of what torch compiles just now: a lock each, which it holds meanwhile."""
    held = set()
    for path in (folder / _LOCKS).glob("*.lock"):
        with path.open("rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                held.add(path.stem)
            else:
                fcntl.flock(lock, fcntl.LOCK_UN)  # a child may have inherited it
    return held


def _key(name: str) -> str:
    """Return torch's key of a file, for which it has a lock while it builds it."""
    return PurePosixPath(name).name.partition(".")[0]


def _names_others(name: str) -> bool:
    """Whether it is one in which Triton has the whole paths of the files of a kernel."""
    return PurePosixPath(name).name.startswith(_TRITON_GROUP)


def _add(tar: tarfile.TarFile, name: str, content: bytes, *, executable: bool) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    member.mode = 0o700 if executable else 0o600
    tar.addfile(member, io.BytesIO(content))


def _extract(tar: tarfile.TarFile, draft: Path, most: int) -> None:
    for member in tar:
        path = PurePosixPath(member.name)
        elsewhere = path.is_absolute() or ".." in path.parts
        if not member.isreg() or member.size < 0 or elsewhere:
            raise Absent(f"not trusted: it holds {member.name!r}, which is no file below a folder")
        most -= member.size
        if most < 0:
            raise Absent("not trusted: unpacked, it is larger than may be kept")
        source = tar.extractfile(member)
        if source is None:
            raise Absent(f"corrupt: it holds nothing of {member.name!r}")
        target = draft / path  # the draft is new: there are no links in it
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with target.open("wb") as file:
            shutil.copyfileobj(source, file)
        target.chmod(0o700 if member.mode & stat.S_IXUSR else 0o600)
