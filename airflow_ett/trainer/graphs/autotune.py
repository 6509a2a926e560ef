"""Kernels that are not tuned again: how fast each choice was in one run is known in the next.

With ``max_autotune`` inductor has several choices for a kernel, builds and times each, and takes
the fastest. It writes the times into a table in its cache directory, and tunes nothing that stands
there. That directory is not to be used once the model's code has changed, say. The table holds for
every model with such shapes, and is small: it is carried by itself.

What is used of torch here is private, and may be missing.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from airflow_ett.trainer.caches.keeping import Keeper
from airflow_ett.trainer.caches.warm import Warm
from airflow_ett.trainer.levers import Levers
from airflow_ett.trainer.place import Place

_LEVER = "autotune"

_MOST = 1000
"""Kernels to be kept. Inductor reads its whole table for each kernel that it tunes."""

_CLOSE_S = 30.0


class Kernel(NamedTuple):
    """What is tuned; ``inputs`` are their devices, types, shapes and strides."""

    operation: str
    inputs: str
    precision: str


class Timings:
    """Milliseconds by kernel and choice; the kernels that came last are at the end."""

    def __init__(self, known: Mapping[Kernel, Mapping[str, float]]) -> None:
        self.known = known

    @classmethod
    def parse(cls, table: Any) -> Timings:
        """Return what stands in a table of inductor's. Raises ``ValueError`` if it is none."""
        try:
            return cls(
                {
                    Kernel(operation, inputs, precision): {c: float(ms) for c, ms in times.items()}
                    for operation, kernels in table.items()
                    for inputs, precisions in kernels.items()
                    for precision, times in precisions.items()
                }
            )
        except (AttributeError, TypeError, ValueError) as error:
            raise ValueError(f"this is no table of timings: {error}") from error

    def table(self) -> dict[str, dict[str, dict[str, dict[str, float]]]]:
        """Return the table in which this stands."""
        table: dict[str, dict[str, dict[str, dict[str, float]]]] = {}
        for (operation, inputs, precision), times in self.known.items():
            table.setdefault(operation, {}).setdefault(inputs, {})[precision] = dict(times)
        return table

    def merged(self, later: Timings) -> Timings:
        """Return both; where both time a choice, ``later`` is right."""
        known = {kernel: times for kernel, times in self.known.items() if kernel not in later.known}
        both = {k: {**self.known.get(k, {}), **times} for k, times in later.known.items()}
        return Timings({**known, **both})

    def only(self, kernels: Iterable[Kernel]) -> Timings:
        """Return what is known of these kernels."""
        return Timings({kernel: self.known[kernel] for kernel in kernels if kernel in self.known})

    def newest(self, most: int) -> Timings:
        """Return the last ``most`` kernels."""
        return Timings(dict([*self.known.items()][max(0, len(self.known) - most) :]))


class Autotune:
    """Has inductor know the timings of earlier runs, and keeps those of this one.

    Does nothing before :meth:`open`; ``place`` is None outside a launched job.
    """

    def __init__(self, place: Place | None, warm: Warm, levers: Levers) -> None:
        self._place = place
        self._warm = warm
        self._levers = levers
        self._open = False
        self._name = ""
        self._key: Mapping[str, str] = {}
        self._kept: Timings | None = None
        self._earlier = Timings({})
        self._lock = threading.Lock()
        self._asked: dict[Kernel, int] = {}
        self._keeper = Keeper(self._put)

    def open(self) -> None:
        """Hook into torch; called before the first compilation."""
        if self._open or self._place is None or not self._levers.on(_LEVER):
            return
        with self._guarded():
            from torch._inductor import select_algorithm

            select_algorithm.add_preprocessing_fn(self._before)
            select_algorithm.add_feedback_saver(self._after)
            self._open = True

    def keep(self) -> None:
        """Tell what became of the kernels that were asked for, and keep the timings of new ones."""
        with self._lock:
            asked, self._asked = self._asked, {}
        if self._kept is None or not asked:
            return
        with self._guarded():
            now = Timings.parse(_shelf().get_local_cache()).only(asked)
            self._tell(asked, now)
            self._earlier = self._earlier.merged(now)
            if now.known != self._kept.only(asked).known:
                self._kept = self._kept.merged(now).newest(_MOST)
                self._keeper.ask()

    def close(self, *, hurried: bool) -> None:
        """The training ends: torch's hooks, which cannot be taken out singly, do nothing more."""
        if not hurried:
            self.keep()
            self._keeper.wait(_CLOSE_S)
        self._open = False

    def _put(self) -> None:
        with self._guarded():
            if self._kept is not None:
                self._warm.put(self._name, self._kept.table(), self._key)

    def _before(self, choices: list[Any]) -> list[Any]:
        """Choices are about to be looked up in inductor's table, which only now is where it is."""
        if self._open and self._kept is None:
            with self._guarded():
                self._restore()
        return choices

    def _after(self, timings: Mapping[Any, float], operation: str, inputs: Any, *_: Any) -> None:
        """The timings of a kernel's choices are known, from the table or by trying them."""
        if not self._open:
            return
        with self._guarded():
            import torch
            from torch._inductor.select_algorithm import create_inputs_key

            precision = torch.get_float32_matmul_precision()
            with self._lock:
                self._asked[Kernel(operation, create_inputs_key(inputs), precision)] = len(timings)

    def _restore(self) -> None:
        """Put what an earlier run knew into inductor's table; what stands there goes before it."""
        import torch
        from torch._inductor import config

        from airflow_ett.trainer.caches.key import machine

        self._kept = Timings({})
        if not config.autotune_local_cache:
            raise RuntimeError("torch._inductor.config.autotune_local_cache is off")
        shelf = _shelf()
        facts = machine()
        self._name = f"autotune {facts['GPU'] or facts['CPU']}"  # hosts may take turns
        self._key = {"torch": str(torch.__version__), **facts}
        stands = Timings.parse(shelf.get_local_cache())
        try:
            self._kept = Timings.parse(self._warm.find(self._name, self._key) or {})
        except ValueError as error:
            self._levers.tell(_LEVER, "missed", str(error))
        self._earlier = self._kept.merged(stands)
        if self._earlier.known != stands.known:
            shelf.update_local_cache(self._earlier.table())

    def _tell(self, asked: Mapping[Kernel, int], now: Timings) -> None:
        tuned = {
            kernel: "other choices than were timed"
            if kernel in self._earlier.known
            else "not known"
            for kernel in asked
            if kernel not in now.known or now.known[kernel] != self._earlier.known.get(kernel)
        }
        replayed = [choices for kernel, choices in asked.items() if kernel not in tuned]
        if replayed:
            told = f"{len(replayed)} of {len(asked)} kernels replayed, {sum(replayed)} choices"
            self._levers.tell(_LEVER, "used", f"{told} not tried")
        if tuned:
            reasons = ", ".join(f"{n} {why}" for why, n in Counter(tuned.values()).items())
            told = f"{len(tuned)} of {len(asked)} kernels tuned: {reasons}"
            self._levers.tell(_LEVER, "missed", told)

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """An error, such as another torch may lead to, would end the user's compilation."""
        try:
            yield
        except Exception as error:
            self._open = False
            reason = f"inductor's table of timings cannot be used: {type(error).__name__}: {error}"
            self._levers.tell(_LEVER, "unable", reason)


def _shelf() -> Any:
    """Return what reads and writes inductor's table, wherever its cache directory is now."""
    from torch._inductor.codecache import PersistentCache

    return PersistentCache()
