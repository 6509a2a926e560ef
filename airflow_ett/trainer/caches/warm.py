"""What is dear to find out, kept for the next attempt: JSON values, by name and key.

They lie in room ``warm`` of the tenant's place, which all hosts see, so a relaunch elsewhere has
them, too. A name has one value for all ranks: each may read it, the first one keeps it.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from airflow_ett.events import slug
from airflow_ett.trainer.caches.absence import Absent
from airflow_ett.trainer.levers import Levers, Outcome
from airflow_ett.trainer.place import Place, ask

if TYPE_CHECKING:
    from airflow_ett.trainer.caches.store import CacheStore

_LEVER = "warm_recovery"
_MOST_BYTES = 1 << 28
"""All values of a tenant; those that were used longest ago go first."""

_PATIENCE_S = 30.0
"""For a place behind a network, once: what it holds is not worth waiting for any longer."""

_NOTHING = object()
_Answer = TypeVar("_Answer")


class _Entry(NamedTuple):
    """Where a value lies: the user's name for it, the store's, and what its key comes to."""

    store: CacheStore
    name: str
    stored: str
    key: str


class Warm:
    """Values by name; ``place`` is None outside a launched job, where nothing is kept.

    What cannot be kept or read is told as an event of lever ``warm_recovery`` and never raised.
    One rank may have to make what another one has found, so what makes a value must not wait for
    other ranks. Any thread may call it.
    """

    def __init__(self, place: Place | None, levers: Levers) -> None:
        self._place = place
        self._levers = levers
        self._lock = threading.Lock()
        self._asked = False
        self._store: CacheStore | None = None

    def get(self, name: str, make: Callable[[], Any], key: Any) -> Any:
        """Return the value that is kept under ``name`` and ``key``, else make and keep it."""
        entry = self._entry(name, key)
        if entry is None:
            return make()
        value = self._read(entry)
        if value is _NOTHING:
            began = time.monotonic_ns()
            value = make()
            self._write(entry, value, took_ns=time.monotonic_ns() - began)
        return value

    def find(self, name: str, key: Any) -> Any:
        """Return the value that is kept under ``name`` and ``key``, None where there is none."""
        entry = self._entry(name, key)
        value = self._read(entry) if entry else _NOTHING
        return None if value is _NOTHING else value

    def put(self, name: str, value: Any, key: Any) -> None:
        """Keep a JSON value under ``name`` and ``key``, in place of the former one."""
        entry = self._entry(name, key)
        if entry:
            self._write(entry, value)

    def leave(self) -> None:
        """Keep and find nothing from here on: another process or Session has the word."""
        self._place = None

    def _entry(self, name: str, key: Any) -> _Entry | None:
        store = self._open()
        if store is None:
            return None
        try:
            digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
            return _Entry(store, name, slug(name), digest)
        except Exception as error:  # of whatever kind, here and below: the training can do without
            reason = f"{name}: its key is no JSON, or its name no text ({error})"
            self._levers.tell(_LEVER, "unable", reason)
            return None

    def _open(self) -> CacheStore | None:
        """Return the store, None where nothing can be kept, which is told of once."""
        if self._place is None:
            return None
        with self._lock:
            if not self._asked:
                self._asked = True
                from airflow_ett.trainer.caches.store import CacheStore  # not before it is needed

                place = self._place.context.cache
                try:
                    if self._levers.on(_LEVER):
                        self._store = self._ask(
                            lambda: CacheStore(place, "warm", max_bytes=_MOST_BYTES)
                        )
                except Exception as error:
                    self._levers.tell(_LEVER, "unable", str(error))
            return self._store

    def _ask(self, act: Callable[[], _Answer]) -> _Answer:
        try:
            return ask(act, _PATIENCE_S)
        except TimeoutError as error:
            self._store = None
            raise Absent(f"{error}; the place is not asked again") from error

    def _read(self, entry: _Entry) -> Any:
        began = time.monotonic_ns()
        try:
            content, facts = self._ask(lambda: entry.store.read(entry.stored))
            if facts.about.get("key") != entry.key:
                raise Absent("what is there was made for another key")
            value = json.loads(content)
        except Exception as error:
            outcome: Outcome = "missed" if self._store else "unable"
            self._levers.tell(_LEVER, outcome, f"{entry.name}: {error}")
            return _NOTHING
        took = facts.about.get("took_ns")
        making = f": making it took {took / 1e9:.1f} s" if isinstance(took, int) else ""
        self._levers.tell(
            _LEVER,
            "used",
            f"{entry.name}{making}",
            duration_ns=time.monotonic_ns() - began,
            size=facts.size,
        )
        return value

    def _write(self, entry: _Entry, value: Any, *, took_ns: int | None = None) -> None:
        """Keep a value that JSON gives back as it is; a tuple, say, would be a list next time."""
        if self._place is None or self._place.rank != 0 or self._store is None:
            return
        began = time.monotonic_ns()
        try:
            text = json.dumps(value)
            if repr(json.loads(text)) != repr(value):
                raise ValueError("it would come back as another value")
        except Exception as error:
            reason = f"{entry.name} is no plain JSON: {error}"
            self._levers.tell(_LEVER, "unable", reason)
            return
        about = {"key": entry.key, "took_ns": took_ns}
        try:
            self._ask(lambda: entry.store.write(entry.stored, text.encode(), about))
        except Exception as error:
            self._levers.tell(_LEVER, "unable", f"{entry.name}: {error}")
            return
        self._levers.tell(
            _LEVER, "saved", entry.name, duration_ns=time.monotonic_ns() - began, size=len(text)
        )
