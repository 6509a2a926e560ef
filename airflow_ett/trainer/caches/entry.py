"""What is kept of a training's compiled code, in the store, under the key of what it depends on."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from pathlib import Path

from airflow_ett.trainer.caches import archive, key, mega
from airflow_ett.trainer.caches.absence import Absent, NothingSaved
from airflow_ett.trainer.caches.scratch import Restored
from airflow_ett.trainer.caches.store import CacheStore, Facts
from airflow_ett.trainer.place import ask

_READ_S = 60.0
_AGES = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))

_log = logging.getLogger("airflow_ett.trainer")


class Entry:
    """The entry for ``parts``, restored into and saved from ``folder``."""

    def __init__(
        self, store: CacheStore, parts: key.Parts, folder: Path, *, by: str, max_bytes: int
    ) -> None:
        self._store = store
        self._parts = parts
        self._name = key.name(parts)
        self._folder = folder
        self._by = by
        self._max_bytes = max_bytes
        self.kept: Mapping[str, int] = {}
        """The files that the store has, with their sizes."""

    def restore(self) -> Restored:
        """Restore what was kept. A miss has its reason."""
        try:
            content, facts = ask(lambda: self._store.read(self._name), _READ_S)
            beside = archive.unpack(content, self._folder, most=self._max_bytes)
            if beside and not mega.load(beside):
                raise Absent("corrupt: torch cannot read the MegaCache")
        except NothingSaved:
            return self._missed(self._why_missed())
        except Exception as error:  # of whatever kind: else it would fail each time from now on
            return self._missed(_told(error), warn=True)
        return Restored("used", _origin(facts), facts.size, archive.sizes(self._folder))

    def outdated(self) -> bool:
        """Whether there are files that the store does not have."""
        return archive.sizes(self._folder) != self.kept

    def save(self, beside: bytes) -> int:
        """Keep what is in the folder; return its size. Raises :class:`Absent`, ``OSError``."""
        content, files = archive.pack(self._folder, beside=beside, most=self._max_bytes)
        about = {"parts": dict(self._parts), "by": self._by}
        self._store.write(self._name, content, about)
        self.kept = files
        return len(content)

    def _missed(self, reason: str, *, warn: bool = False) -> Restored:
        if warn:
            _log.warning("compile_cache: what was compiled before is not used: %s", reason)
        return Restored("missed", reason, None, {})

    def _why_missed(self) -> str:
        try:
            kept = ask(self._store.listing, _READ_S)
        except (Absent, OSError) as error:
            return _told(error)
        known = [facts.about.get("parts") for facts in kept]
        return key.why_missed(self._parts, [one for one in known if isinstance(one, dict)])


def _told(error: Exception) -> str:
    if isinstance(error, Absent):
        return str(error)
    failed = "reached" if isinstance(error, TimeoutError) else "unpacked"
    return f"cannot be {failed}: {error if isinstance(error, OSError) else repr(error)}"


def _origin(facts: Facts) -> str:
    age = max(0, time.time_ns() - facts.saved_ns) // 1_000_000_000
    length, unit = next((one for one in _AGES if age >= one[0]), (1, "s"))
    return f"saved {age // length} {unit} ago by {facts.about.get('by', 'an unnamed job')}"
