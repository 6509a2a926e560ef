"""Agreement among the ranks: when to save and when to stop must be the same step for all of them.

Ranks notice a due time or a SIGTERM at different steps, and one that alone enters a collective save
hangs the others. So about once a second of steps all of them exchange a few numbers, at a step that
they agreed on the time before.
"""

from __future__ import annotations

import contextlib
import sys
import time
from typing import Any, NamedTuple

from airflow_ett.errors import ConfigurationError

_PULSE_NS = 1_000_000_000
_FREED_S = 0.05


class Decision(NamedTuple):
    """What all ranks do after this step; ``fail``: end, because a save has failed."""

    save: bool
    stop: bool
    fail: bool


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
        self.rank, self.world = 0, 1
        if not self.several:
            if world_size > 1:
                problem = f"{world_size} ranks need torch.distributed.init_process_group before it"
                raise ConfigurationError("checkpointer", problem)
            return
        self.rank, self.world = distributed.get_rank(), distributed.get_world_size()
        # Groups of their own, on the CPU: agreements and uploads run beside the user's collectives.
        self._talk: Any = distributed.new_group(backend="gloo")
        self.uploads: Any = distributed.new_group(backend="gloo")
        self._left = self._stride = 1
        self._since = time.monotonic_ns()

    @property
    def first(self) -> bool:
        """Whether this rank speaks for all."""
        return self.rank == 0

    def share(self, value: Any) -> Any:
        """Return the first rank's ``value`` on every rank."""
        if not self.several:
            return value
        import torch.distributed as dist

        box = [value]
        dist.broadcast_object_list(box, src=0, group=self._talk)
        return box[0]

    def gather(self, value: Any) -> list[Any]:
        """Return every rank's ``value`` on the first rank, nothing on the others; for uploads."""
        if not self.several:
            return [value]
        import torch.distributed as dist

        values = [None] * self.world if self.first else None
        dist.gather_object(value, values, dst=0, group=self.uploads)
        return values or []

    def concur(self, problem: str | None) -> str | None:
        """Return on every rank what went wrong on any of them, None where nothing did.

        So that a rank which fails on the way to a collective does not let the others hang in it.
        """
        if not self.several:
            return problem
        import torch
        import torch.distributed as dist

        failed = torch.tensor(int(problem is not None))
        dist.all_reduce(failed, dist.ReduceOp.MAX, group=self._talk)
        if not failed.item():
            return None
        problems: list[str | None] = [None] * self.world
        dist.all_gather_object(problems, problem, group=self._talk)
        return "; ".join(f"rank {rank}: {text}" for rank, text in enumerate(problems) if text)

    def close(self) -> None:
        """End the groups: one that lives until the interpreter ends often aborts the process there.

        It asks no other rank.
        """
        if not self.several:
            return
        import torch.distributed as dist

        # A group's thread may have yet to free the tensors of its last collective, for which it
        # needs the GIL. Older torch, such as 2.6, holds the GIL while it joins that thread.
        time.sleep(_FREED_S)
        groups = self._talk, self.uploads
        self._talk = self.uploads = None
        for group in groups:
            with contextlib.suppress(Exception):  # the user may have ended them all already
                dist.destroy_process_group(group)

    def tick(self) -> bool:
        """Count a step; True where it is the one at which :meth:`agree` is to be called."""
        self._left -= 1
        return self._left == 0

    def agree(self, *, due: bool, stop: bool, fail: bool) -> Decision:
        """Agree on what follows this step: a save if the first finds it due, the rest if any."""
        import torch
        import torch.distributed as dist

        stride = self._next_stride() if self.first else 0
        agreed = torch.tensor([int(due and self.first), int(stop), int(fail), stride])
        dist.all_reduce(agreed, dist.ReduceOp.MAX, group=self._talk)
        save, halt, failed, self._stride = agreed.tolist()
        self._left = self._stride
        return Decision(bool(save), bool(halt), bool(failed))

    def _next_stride(self) -> int:
        """Return how many steps fit into a pulse, growing at most twofold."""
        now = time.monotonic_ns()
        elapsed, self._since = now - self._since, now
        return max(1, min(2 * self._stride, self._stride * _PULSE_NS // max(elapsed, 1)))
