"""What was read of jobs that have ended, so that it is not read again with each page.

The database has to go through a job's whole result for any part of it, thousands of checkpoints
included.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from threading import Lock
from typing import Any

_MOST = 32 * 2**20


class Kept:
    """Texts of JSON objects by their keys, at most ``most`` characters of them; for many threads.

    The ones that were not asked for the longest go first.
    """

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._size = 0
        self._texts: OrderedDict[Hashable, str] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable) -> dict[str, Any] | None:
        """Return a new copy of what is kept, None where nothing is."""
        with self._lock:
            text = self._texts.get(key)
            if text is None:
                return None
            self._texts.move_to_end(key)
        found: dict[str, Any] = json.loads(text)
        return found

    def keep(self, key: Hashable, value: Mapping[str, Any]) -> None:
        """Keep a JSON object, in place of what was kept under its key."""
        text = json.dumps(value, separators=(",", ":"))
        with self._lock:
            self._size += len(text) - len(self._texts.pop(key, ""))
            self._texts[key] = text
            while self._size > self._most:
                _, gone = self._texts.popitem(last=False)
                self._size -= len(gone)
