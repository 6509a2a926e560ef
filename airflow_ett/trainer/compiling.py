"""Compilations, seen where they happen, with what the caches gave and why there was another one.

Torch has no public hook for this: the callbacks of ``torch._dynamo`` are used, and everything read
from it may be missing. The module costs seconds to import, so it is watched only once somebody
else has imported it, as ``torch.compile`` and every optimizer do.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from airflow_ett.events import Kind
from airflow_ett.trainer.journal import Journal
from airflow_ett.trainer.phases import MAIN, Phases, Span

_COUNTERS = (("inductor", "fxgraph_cache_"), ("aot_autograd", "autograd_cache_"))


class _Running(NamedTuple):
    span: Span
    hits: int
    misses: int


class _Finished(NamedTuple):
    id: str
    trigger: str
    time_ns: int
    data: Mapping[str, Any]


class CompileWatcher:
    """Writes a ``compile`` phase and a ``compile`` event for every outermost compilation.

    Torch tells of the outermost one in the whole process: one that begins while another thread
    compiles is not seen. ``hurry`` has :meth:`watch` called after the present step.
    """

    def __init__(
        self, journal: Journal, phases: Phases, offset: int, *, hurry: Callable[[], None]
    ) -> None:
        self._journal = journal
        self._phases = phases
        self._offset = offset
        self._hurry = hurry
        self._running: _Running | None = None
        self._finished: deque[_Finished] = deque()
        self.compiled: Callable[[], None] = lambda: None
        """Called between steps once something was compiled; must not raise."""
        self._follow: Callable[[Mapping[str, Any]], None] | None = None
        # One object each, so that they are found again in torch's lists.
        self._callbacks = (self._callback(self._begin), self._callback(self._end))

    def watch(self) -> None:
        """Hook into torch once it can compile, and write what was compiled since the last call.

        Cheap; called between steps and at phase edges, where the main lane alone heeds it.
        ``torch._dynamo.reset()`` removes hooks, so it looks again each time.
        """
        if self._phases.lane != MAIN:
            return
        compiled = bool(self._finished)
        with self._guarded():
            self._report()
            handler = _callback_handler()
            if handler is not None and self._callbacks[0] not in handler.start_callbacks:
                handler.register_start_callback(self._callbacks[0])
                handler.register_end_callback(self._callbacks[1])
        if compiled:
            self.compiled()

    def follow(self, hear: Callable[[Mapping[str, Any]], None] | None) -> None:
        """Have ``hear`` called with what is written of each compilation from now on.

        :meth:`watch` is called after the present step.
        """
        self._follow = hear
        self._hurry()

    def unwatch(self) -> None:
        """Write what is left and take the hooks out."""
        with self._guarded():
            self._report()
            handler = _callback_handler()
            if handler is not None and self._callbacks[0] in handler.start_callbacks:
                handler.remove_start_callback(self._callbacks[0])
                handler.remove_end_callback(self._callbacks[1])

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """An error, such as another torch may lead to, would end the user's loop or compilation."""
        try:
            yield
        except Exception as error:
            self._journal.warn("A compilation was not recorded", error)

    def _callback(self, act: Callable[[Any], None]) -> Callable[..., None]:
        def guarded(arguments: Any = None) -> None:  # torch 2.6 passes none
            with self._guarded():
                act(arguments)

        return guarded

    def _begin(self, _: Any) -> None:
        hits, misses = _cache_counts()
        # The GPU is not waited for: a graph may be being captured.
        self._running = _Running(self._phases.begin("compile", synchronize=False), hits, misses)

    def _end(self, arguments: Any) -> None:
        running, self._running = self._running, None
        if running is None:
            return
        length = running.span.end(synchronize=False)
        hits, misses = _cache_counts()
        data = {
            "duration_ns": length,
            # Whoever resets torch's counters in between makes them start at 0.
            "hits": max(0, hits - running.hits),
            "misses": max(0, misses - running.misses),
            "lane": running.span.lane,
        }
        ended = running.span.begin + length + self._offset
        compile_id = _compile_id() if arguments is None else arguments.compile_id
        trigger = getattr(getattr(arguments, "callback_trigger", None), "name", "").lower()
        self._finished.append(_Finished(str(compile_id), trigger, ended, data))
        self._hurry()

    def _report(self) -> None:
        """Write compile events; torch files their reasons only after the end callback."""
        if not self._finished:
            return
        reasons = _recompile_reasons()
        while self._finished:
            one = self._finished.popleft()
            backward = " backward" if one.trigger == "lazy_backward" else ""
            told = {"id": one.id + backward, "trigger": one.trigger or None}
            data = {**told, **one.data, "reason": reasons.get(one.id)}
            self._journal.emit(Kind.COMPILE, data, time_ns=one.time_ns)
            if self._follow is not None:
                self._follow(data)


def _callback_handler() -> Any:
    return getattr(sys.modules.get("torch._dynamo.callback"), "callback_handler", None)


def _compile_id() -> Any:
    """Return the id of what is being compiled on this thread."""
    return sys.modules["torch._guards"].CompileContext.current_compile_id()


def _cache_counts() -> tuple[int, int]:
    """Return hits and misses so far, of inductor's and AOTAutograd's caches together."""
    utils = sys.modules.get("torch._dynamo.utils")
    counters = getattr(utils, "counters", {})
    counts = [
        sum(counters.get(group, {}).get(prefix + what, 0) for group, prefix in _COUNTERS)
        for what in ("hit", "miss")
    ]
    return counts[0], counts[1]


def _recompile_reasons() -> dict[str, str]:
    utils = sys.modules.get("torch._dynamo.utils")
    metrics: list[Any] = getattr(utils, "get_compilation_metrics", list)()
    return {
        str(m.compile_id): str(m.recompile_reason)
        for m in metrics
        if getattr(m, "recompile_reason", None)
    }
