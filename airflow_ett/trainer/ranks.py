"""Agreement among the ranks: when to save and when to stop must be the same step for all of them.

Ranks notice a due time or a SIGTERM at different steps, and one that alone enters a collective save
hangs the others. So about once a second of steps all of them exchange three numbers, at a step that
they agreed on the time before.
"""

from __future__ import annotations

import sys
import time
from typing import Any, NamedTuple

from airflow_ett.errors import ConfigurationError

_PULSE_NS = 1_000_000_000


class Decision(NamedTuple):
    """What all ranks do after this step."""

    save: bool
    stop: bool


class Ranks:
    """The ranks of a training that save together; a single process needs no agreement.

    Every rank makes it at the same point. Raises :class:`ConfigurationError` where there are
    several ranks without a process group.
    """

    def __init__(self, world_size: int) -> None:
        distributed: Any = sys.modules.get("torch.distributed")
        self.several = bool(
            distributed and distributed.is_available() and distributed.is_initialized()
        )
        self.first = True
        if not self.several:
            if world_size > 1:
                problem = f"{world_size} ranks need torch.distributed.init_process_group before it"
                raise ConfigurationError("checkpointer", problem)
            return
        self.first = distributed.get_rank() == 0
        # Groups of their own, on the CPU: agreements and uploads run beside the user's collectives.
        self._talk = distributed.new_group(backend="gloo")
        self.uploads: Any = distributed.new_group(backend="gloo")
        self._left = self._stride = 1
        self._since = time.monotonic_ns()

    def share(self, value: Any) -> Any:
        """Return the first rank's ``value`` on every rank."""
        if not self.several:
            return value
        import torch.distributed as dist

        box = [value]
        dist.broadcast_object_list(box, src=0, group=self._talk)
        return box[0]

    def tick(self) -> bool:
        """Count a step; True where it is the one at which :meth:`agree` is to be called."""
        self._left -= 1
        return self._left == 0

    def agree(self, *, due: bool, stop: bool) -> Decision:
        """Agree on what follows this step: a save if the first rank finds it due, a stop if any."""
        import torch
        import torch.distributed as dist

        numbers = [int(due and self.first), int(stop), self._next_stride() if self.first else 0]
        agreed = torch.tensor(numbers)
        dist.all_reduce(agreed, dist.ReduceOp.MAX, group=self._talk)
        save, halt, self._stride = agreed.tolist()
        self._left = self._stride
        return Decision(bool(save), bool(halt))

    def _next_stride(self) -> int:
        """Return how many steps fit into a pulse, growing at most twofold."""
        now = time.monotonic_ns()
        elapsed, self._since = now - self._since, now
        return max(1, min(2 * self._stride, self._stride * _PULSE_NS // max(elapsed, 1)))
