"""What a training task asks for, as plain data that survives JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Request:
    """One training as its task describes it; the names are the operator's parameters.

    ``checkpoint_uri`` is the job's own folder or URI, or None for the run directory.
    ``failures_per_hour`` is how often trainings like it were interrupted, None where unknown.
    ``cache_root`` is ``[ett] cache_root``.
    """

    component: str
    component_args: Sequence[str]
    scheduler: str
    cfg: Mapping[str, Any] = field(default_factory=dict)
    resource: str | Mapping[str, int] | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    checkpoint_uri: str | None = None
    resume: str = "auto"
    init_from: str | None = None
    max_relaunches: int = 3
    failures_per_hour: float | None = None
    cache_root: str = ""

    def digest(self) -> str:
        """Return 16 hexadecimal digits that change with anything the scheduler would be asked.

        What becomes of the training afterwards (``max_relaunches``) is no part of it, nor is what
        was learnt from others (``failures_per_hour``, ``cache_root``). Nothing can be read back
        from it, so that secrets in ``env`` stay what they are.
        """
        asked = asdict(self)
        del asked["max_relaunches"], asked["failures_per_hour"], asked["cache_root"]
        text = json.dumps(asked, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def as_dict(self) -> dict[str, Any]:
        """Return the request as JSON-able data."""
        return asdict(self)
