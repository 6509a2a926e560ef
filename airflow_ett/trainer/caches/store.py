"""Named contents in a folder or behind a URI, from which only whole and untouched ones are read.

::

    <place>/<room>/<name>.json                   facts: digest, size; the commit point
    <place>/<room>/<name>.used                   when it was read last
    <place>/<room>/<name>-<saved>-<digest>.bin   the content, written first and never again

A writer replaces the facts at once, so a reader has the old content or the new one; two writers of
one name leave the later one's. What is kept here may be executed: of a folder, only what nobody
else could have written is read (:mod:`airflow_ett.trainer.caches.trust`); an object store's rights
are not seen from here.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from airflow_ett.checkpoints import layout
from airflow_ett.checkpoints.layout import Folder
from airflow_ett.errors import ConfigurationError
from airflow_ett.trainer.caches import trust
from airflow_ett.trainer.caches.absence import Absent, NothingSaved

ORPHANED_NS = 3_600_000_000_000
"""Age at which a content without facts is left over from a writer that died, and is removed."""

MOST_ENTRIES = 64
"""So many contents are kept, however small.

Each one costs four requests when they are listed, which a training that finds nothing waits for.
"""

_DIGEST = 16
_MOST_FACTS = 1 << 20
_NEVER_NS = 1 << 63
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,99}")
_WRITTEN = re.compile(r".*-(\d+)-[0-9a-f]{16}\.bin|\..*\.(\d+)\.tmp")
_HIDES_A_FOLDER = re.compile(r"local://|dir://|\w+::")


class Facts(NamedTuple):
    """What is known of a content: ``about`` is its writer's own; times are UTC nanoseconds."""

    name: str
    size: int
    digest: str
    saved_ns: int
    used_ns: int
    about: Mapping[str, Any]

    @property
    def file(self) -> str:
        """The name of the file that has the content."""
        return f"{self.name}-{self.saved_ns}-{self.digest[:_DIGEST]}.bin"


class CacheStore:
    """The contents of one room, such as ``compile``, at a place.

    ``max_bytes`` bounds them all: a write removes those that were used longest ago. Every method
    raises :class:`Absent`, with the reason, where it cannot do its work.
    """

    def __init__(self, place: str, room: str, *, max_bytes: int) -> None:
        if not place:
            raise Absent("there is no place for it: set [ett] cache_root")
        if _HIDES_A_FOLDER.match(place):
            raise Absent(
                f"not trusted: whose files {place} shows is not seen; give the path itself"
            )
        try:
            self._folder: Folder = layout.folder(f"{place.rstrip('/')}/{room}")
        except ConfigurationError as error:
            raise Absent(f"cannot be reached: {error.problem}") from error
        except Exception as error:  # some look for credentials, or connect, when they are made
            raise Absent(f"cannot be reached: {error!r}") from error
        self._max_bytes = max_bytes

    def read(self, name: str) -> tuple[bytes, Facts]:
        """Return a content and its facts, and note that it was used."""
        with self._told("reached"):
            folder = self._trusted()
            content, facts = self._read(folder, name)
        if hashlib.sha256(content).hexdigest() != facts.digest:
            raise Absent(f"corrupt: {name} is not what was saved, its digest is another")
        with suppress(OSError):  # whoever may not write here may read all the same
            _write(folder, f"{name}.used", str(time.time_ns()).encode())
        return content, facts

    def write(self, name: str, content: bytes, about: Mapping[str, Any]) -> None:
        """Keep a content under a name, in place of the former one."""
        if not _NAME.fullmatch(name):
            raise Absent(f"{name!r} is no name for a file")
        size = len(content)
        if size > self._max_bytes:
            raise Absent(f"{size} bytes are more than the {self._max_bytes} that may be kept")
        now = time.time_ns()
        facts = Facts(name, size, hashlib.sha256(content).hexdigest(), now, now, about)
        with self._told("written"):
            folder = self._made()
            former = self._former(folder, name)
            self._make_room(folder, self._max_bytes - size, keep=name)
            _write(folder, facts.file, content)
            _commit(folder, facts)
            if former is not None and former.file != facts.file:
                (folder / former.file).unlink(missing_ok=True)

    def listing(self) -> list[Facts]:
        """Return the facts of all contents that can be read, the most recently used first."""
        with self._told("reached"):
            return self._listing(self._trusted())

    def _trusted(self) -> Folder:
        if not isinstance(self._folder, Path):
            return self._folder
        try:
            return trust.check(self._folder)
        except FileNotFoundError:
            return self._folder  # there is nothing in it

    def _made(self) -> Folder:
        if isinstance(self._folder, Path):
            return trust.make(self._folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        return self._folder

    @contextmanager
    def _told(self, done: str) -> Iterator[None]:
        try:
            yield
        except trust.Untrusted as error:
            raise Absent(f"not trusted: {error}") from error
        except OSError as error:
            raise Absent(f"cannot be {done}: {self._folder}: {error}") from error

    def _read(self, folder: Folder, name: str) -> tuple[bytes, Facts]:
        for _ in range(2):  # another writer may have replaced it in between
            try:
                facts = _facts(folder, name)
            except FileNotFoundError:
                raise NothingSaved(f"nothing was saved as {name}") from None
            if facts.size > self._max_bytes:
                raise Absent(f"its {facts.size} bytes are more than {self._max_bytes}")
            with suppress(FileNotFoundError):
                return _content(folder / facts.file, most=facts.size), facts
        raise Absent(f"corrupt: the content of {name} is gone")

    def _former(self, folder: Folder, name: str) -> Facts | None:
        try:
            return _facts(folder, name)
        except (Absent, FileNotFoundError):
            return None

    def _listing(self, folder: Folder) -> list[Facts]:
        names = [path.name for path in _listed(folder)]
        found = []
        for name in (name.removesuffix(".json") for name in names if name.endswith(".json")):
            with suppress(OSError, Absent):
                facts = _facts(folder, name)
                used = f"{name}.used" in names and _used_ns(folder, name)
                found.append(facts._replace(used_ns=used or facts.saved_ns))
        return sorted(found, key=lambda facts: facts.used_ns, reverse=True)

    def _make_room(self, folder: Folder, room: int, *, keep: str) -> None:
        """Remove what was used longest ago, and what writers that died have left over."""
        paths = {path.name: path for path in _listed(folder)}
        used = set()
        for place, facts in enumerate(self._listing(folder)):
            if facts.name != keep:
                with suppress(FileNotFoundError):
                    room -= (folder / facts.file).stat().st_size
                if room < 0 or place + 1 >= MOST_ENTRIES:
                    for name in (f"{facts.name}.json", f"{facts.name}.used", facts.file):
                        (folder / name).unlink(missing_ok=True)
                    continue
            used.add(facts.file)
        for name in paths.keys() - used:
            if _is_left_over(name):
                paths[name].unlink(missing_ok=True)


def _facts(folder: Folder, name: str) -> Facts:
    text = _content(folder / f"{name}.json", most=_MOST_FACTS)
    try:
        told: dict[str, Any] = json.loads(text)
        saved = int(told["saved_ns"])
        digest = re.fullmatch(r"[0-9a-f]{64}", told["digest"])
        if digest is None or not 0 <= saved < _NEVER_NS:
            raise ValueError("no digest, or no time")
        return Facts(name, int(told["size"]), digest[0], saved, saved, dict(told["about"]))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise Absent(f"corrupt: the facts of {name} cannot be read ({error!r})") from error


def _used_ns(folder: Folder, name: str) -> int:
    text = _content(folder / f"{name}.used", most=_MOST_FACTS)
    return int(text) if text.isdigit() else 0


def _commit(folder: Folder, facts: Facts) -> None:
    told = facts._asdict()
    del told["name"], told["used_ns"]
    _write(folder, f"{facts.name}.json", json.dumps(told).encode())


def _content(path: Folder, *, most: int) -> bytes:
    if path.stat().st_size > most:
        raise Absent(f"corrupt: {path} has more than {most} bytes")
    return trust.read(path) if isinstance(path, Path) else path.read_bytes()


def _listed(folder: Folder) -> list[Folder]:
    try:
        return layout.listing(folder)
    except FileNotFoundError:
        return []


def _is_left_over(name: str) -> bool:
    written = _WRITTEN.fullmatch(name)
    since = time.time_ns() - int(written[1] or written[2]) if written else 0
    return since > ORPHANED_NS


def _write(folder: Folder, name: str, content: bytes) -> None:
    """Write a file such that it is there whole or not at all, for this user alone."""
    if not isinstance(folder, Path):
        (folder / name).write_bytes(content)
        return
    draft = folder / f".{name}.{os.getpid()}.{time.time_ns()}.tmp"
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(draft, flags, 0o600), "wb") as file:
            file.write(content)
        draft.replace(folder / name)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
