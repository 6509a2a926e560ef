"""What a publishing task carries from process to process while it waits in the triggerer."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from typing import Any

_SECOND_NS = 10**9


@dataclass(frozen=True, slots=True)
class State:
    """How far a try has come. Only JSON types inside; times are UTC nanoseconds.

    ``source`` is what is being published: a training task's output. ``published`` is what was
    published last, None before. The next is ``due_ns`` at the earliest; ``over``: there is none,
    the training is over. The try is to be over at ``deadline_ns``, where it has one.
    """

    deadline_ns: int | None = None
    source: Mapping[str, Any] = field(default_factory=dict)
    published: Mapping[str, Any] | None = None
    due_ns: int = 0
    over: bool = False

    @classmethod
    def begun(cls, timeout: timedelta | None) -> State:
        """Return the state of a try that begins now and may take so long."""
        if timeout is None:
            return cls()
        return cls(deadline_ns=time.time_ns() + int(timeout.total_seconds() * _SECOND_NS))

    @classmethod
    def read(cls, event: Mapping[str, Any]) -> State:
        """Return the state that a trigger's event hands back."""
        return cls(**event["state"])

    @property
    def since(self) -> str | None:
        """The checkpoint that was published last."""
        return None if self.published is None else str(self.published["checkpoint"])

    def of(self, source: Mapping[str, Any], *, every_s: float = 0.0, over: bool = False) -> State:
        """Return the state in which a source is published, the next ``every_s`` after it."""
        due_ns = time.time_ns() + int(every_s * _SECOND_NS)
        return replace(self, source=dict(source), due_ns=due_ns, over=over)

    def after(self, published: Mapping[str, Any]) -> State:
        """Return the state after something was published."""
        return replace(self, published=dict(published))

    def ended(self) -> State:
        """Return the state in which nothing more is to be published."""
        return replace(self, over=True)

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for a trigger."""
        return asdict(self)
