"""The compile cache of a training: restored before its first compilation, kept after each one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from airflow_ett.events import slug
from airflow_ett.trainer.caches import inductor, key, mega, trust
from airflow_ett.trainer.caches.absence import Absent
from airflow_ett.trainer.caches.entry import Entry
from airflow_ett.trainer.caches.keeping import Keeper
from airflow_ett.trainer.caches.scratch import Scratch
from airflow_ett.trainer.caches.store import CacheStore
from airflow_ett.trainer.levers import Levers
from airflow_ett.trainer.phases import Phases
from airflow_ett.trainer.place import Place, ask

LEVER = "compile_cache"

_OTHERS_S = 120.0
_CLOSE_S = 30.0
_OPEN_S = 30.0


class CompileCache:
    """Does nothing before :meth:`open`; ``place`` is None outside a launched job.

    The ranks of a node compile in one folder: the first of them restores it, the one of local rank
    0 keeps it. Nothing is raised.
    """

    def __init__(self, place: Place | None, phases: Phases, levers: Levers) -> None:
        self._place = place
        self._phases = phases
        self._levers = levers
        self._scratch: Scratch | None = None
        self._entry: Entry | None = None
        self._keeper: Keeper | None = None
        self._mega = False
        self._beside = b""
        self._former_folder: str | None = None
        self._refused = ""

    def open(
        self, code: Sequence[Any], *, uri: str | None, max_bytes: int, mega: bool | None
    ) -> None:
        """Restore what may be used again, and keep what is compiled from here on."""
        place = self._place
        if place is None or self._scratch is not None or not self._levers.on(LEVER):
            return
        if early := inductor.compiled_graphs():
            reason = f"{early} graphs were compiled before compile_cache() was called: too late"
            self._levers.tell(LEVER, "unable", reason)
        begun = time.monotonic_ns()
        with self._phases.begin("compile_cache_load"):
            try:
                scratch, entry = self._take(place, code, uri, max_bytes)
                restored = scratch.once(entry.restore, within_s=_OTHERS_S)
                self._mega = _on_gpu() if mega is None else mega
            except Exception as error:  # of whatever kind: the training can do without
                self._unable(error)
                self._release()
                return
        took = time.monotonic_ns() - begun
        self._levers.tell(
            LEVER, restored.outcome, restored.reason, duration_ns=took, size=restored.size
        )
        entry.kept = restored.files
        self._entry = entry
        if place.local_rank == 0:
            self._keeper = Keeper(self._save)

    def keep(self) -> None:
        """Something was compiled, and nothing is just now: keep it, beside the training."""
        if self._keeper is None:
            return
        try:
            self._beside = mega.collect() if self._mega else b""
        except Exception as error:
            self._unable(error)
        try:
            self._keeper.ask()
        except RuntimeError as error:  # there may be a limit to threads
            self._unable(error)

    def close(self, *, hurried: bool) -> None:
        """The training ends: finish what is being kept; ``hurried``: at once."""
        keeper = self._keeper
        if keeper is not None and not hurried:
            try:
                self._finish(keeper)
            except Exception as error:
                self._unable(error)
        self._release(unread=keeper is None or keeper.wait(0))

    def _take(
        self, place: Place, code: Sequence[Any], uri: str | None, max_bytes: int
    ) -> tuple[Scratch, Entry]:
        switched_off = inductor.switched_off()
        if switched_off:
            raise Absent(f"{switched_off} switches torch's own caches off")
        # Some file systems connect when they are made.
        tenants = _tenants(place, uri)
        store = ask(lambda: CacheStore(tenants, "compile", max_bytes=max_bytes), _OPEN_S)
        parts = key.parts(place, code)
        users = inductor.users_folder()
        folder = trust.make(users) if users else None
        scratch = self._scratch = Scratch(
            slug(f"{place.context.key.id} {place.attempt} {place.node}")
        )
        self._former_folder = inductor.use(str(folder or scratch.inductor))
        inductor.forgo_precompiled_headers()
        by = f"{place.context.key}, attempt {place.attempt}"
        entry = Entry(store, parts, folder or scratch.inductor, by=by, max_bytes=max_bytes)
        return scratch, entry

    def _save(self) -> None:
        entry, begun = self._entry, time.monotonic_ns()
        try:
            if entry is None or not entry.outdated():
                return
            size = entry.save(self._beside)
        except Exception as error:
            self._unable(error)
            return
        self._levers.tell(LEVER, "saved", duration_ns=time.monotonic_ns() - begun, size=size)

    def _finish(self, keeper: Keeper) -> None:
        """Keep what another rank, or this one since, has compiled, too."""
        keeper.ask()
        if not keeper.wait(_CLOSE_S):
            raise TimeoutError(f"what was compiled could not be kept within {_CLOSE_S:g} s")
        if self._entry is not None and not self._entry.kept and not self._refused:
            raise Absent("nothing to save: nothing was compiled")

    def _unable(self, error: Exception) -> None:
        """Tell of what goes wrong, once where it goes wrong again and again."""
        reason = str(error) if isinstance(error, (Absent, OSError)) else repr(error)
        if reason != self._refused:
            self._refused = reason
            self._levers.tell(LEVER, "unable", reason)

    def _release(self, *, unread: bool = True) -> None:
        """Have torch compile where it did before; leave the folder, unless it is still read."""
        if self._scratch is None:
            return
        inductor.use(self._former_folder)
        if unread:
            scratch, self._scratch = self._scratch, None
            self._entry = self._keeper = None
            with suppress(OSError):  # the next attempt removes what is left
                scratch.leave()


def _tenants(place: Place, uri: str | None) -> str:
    """Return the place that belongs to this DAG alone: what lies there is executed."""
    if uri is None:
        return place.context.cache
    job = place.context.key
    return f"{uri.rstrip('/')}/{slug(job.deployment)}/{slug(job.dag_id)}"


def _on_gpu() -> bool:
    import torch

    return bool(torch.cuda.is_available())
