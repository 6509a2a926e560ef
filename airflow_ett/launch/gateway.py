"""The only door to TorchX: prepare, submit, find, ask, cancel, read logs.

Schedulers are constructed when first needed and never all at once, since constructing one may have
effects on the process. What a scheduler of ours tells beyond TorchX's words (:class:`Detailed`) is
used; others are asked through TorchX alone. Safe to use from several threads.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchx.runner import Runner
from torchx.schedulers.api import DescribeAppResponse, Scheduler
from torchx.specs import (
    NONE,
    AppDef,
    AppState,
    InvalidRunConfigException,
    make_app_handle,
    parse_app_handle,
)
from torchx.workspace import WorkspaceMixin

from airflow_ett.errors import ConfigurationError, EttError, LaunchError
from airflow_ett.launch import grace
from airflow_ett.launch.abilities import AvoidsHosts, Detailed, KeepsOutput, Names
from airflow_ett.launch.preparation import (
    SchedulerFactory,
    build_app,
    build_resource,
    check_cfg,
    check_scheduler,
    check_script,
    literal,
    scheduler_factories,
    validate_static,
    wrong_cfg,
)
from airflow_ett.launch.schedulers import logs
from airflow_ett.launch.schedulers.local_detached import LocalDetached, working_folder
from airflow_ett.launch.status import TERMINAL_STATES, ReplicaStatus, SchedulerStatus
from airflow_ett.launch.supports import Supports, reach, supports

__all__ = [
    "TERMINAL_STATES",
    "Gateway",
    "Prepared",
    "ReplicaStatus",
    "SchedulerStatus",
    "validate_static",
]

log = logging.getLogger(__name__)

_SESSION = "ett"
_UNSTARTED = "unstarted"

_FRESH_S = 1.0
"""For so long a scheduler's answer about an app also tells where its log is and who writes it, so
that a look at a job asks once: schedulers may take seconds to answer."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """An app that has passed every check and can be submitted, also more than once."""

    scheduler: str
    app: AppDef
    cfg: Mapping[str, Any]
    workspace: str | None

    @property
    def grace_s(self) -> float:
        """Seconds that its trainers are to get between SIGTERM and SIGKILL."""
        wanted = grace.asked(self.app)
        return grace.TORCHRUN_S if wanted is None else wanted

    @property
    def grace_shortfall(self) -> str | None:
        """Why they may get less, in a sentence; None where nothing speaks for it."""
        return grace.shortfall(self.app, self.scheduler, self.cfg)

    def tell(self, env: Mapping[str, str]) -> None:
        """Add variables to the environment of every role."""
        for role in self.app.roles:
            role.env.update(env)


class Gateway:
    """``factories`` are TorchX scheduler factories by name; default: all that are installed."""

    def __init__(self, factories: Mapping[str, SchedulerFactory] | None = None) -> None:
        self._factories = dict(scheduler_factories() if factories is None else factories)
        self._schedulers: dict[str, Scheduler] = {}
        self._lock = threading.Lock()
        self._heard: tuple[str, float, Any] = "", 0.0, None
        self._runner = Runner(_SESSION, {name: self._remember(name) for name in self._factories})

    def prepare(
        self,
        component: str,
        component_args: Sequence[str] | Mapping[str, Any] | None,
        scheduler: str,
        cfg: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        resource: str | Mapping[str, int] | None = None,
        workspace: str | None = None,
        avoid: Sequence[str] = (),
    ) -> Prepared:
        """Return the app to submit; nothing is sent anywhere.

        ``env`` is added to every role, ``resource`` (a registered name, or cpu, gpu, memMB)
        replaces every role's. It is kept away from the hosts in ``avoid`` where the scheduler
        offers that. Raises :class:`ConfigurationError` that names the parameter.
        """
        backend = self._known(scheduler)
        resolved = self.check(scheduler, cfg)
        if workspace and not isinstance(backend, WorkspaceMixin):
            raise ConfigurationError("workspace", f"{scheduler} does not build workspaces")
        app = build_app(component, component_args)
        for role in app.roles:
            role.env.update(literal(env or {}))
            if resource is not None:
                role.resource = build_resource(resource)
        try:
            backend._validate(app, scheduler, resolved)
        except InvalidRunConfigException as error:
            raise wrong_cfg(error) from None
        except ValueError as error:
            raise ConfigurationError("component", f"{scheduler}: {error}") from error
        if isinstance(backend, LocalDetached):
            check_script(component_args or [], working_folder(app.roles[0], resolved["cwd"]))
        known = backend.run_opts().canonical_key  # TorchX takes names in camelCase, too
        options = {known(name) or name: value for name, value in (cfg or {}).items()}
        if avoid and isinstance(backend, AvoidsHosts):
            options = dict(backend.avoiding(options, avoid))
        return Prepared(scheduler, app, options, workspace)

    def check(self, scheduler: str, cfg: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the scheduler's options: ``cfg`` over its defaults. Nothing is sent anywhere.

        Raises :class:`ConfigurationError` that names ``scheduler`` or ``cfg``.
        """
        return check_cfg(self._known(scheduler).run_opts(), cfg or {})

    def supports(self, scheduler: str) -> Supports:
        """Return what the scheduler supports. It is constructed, and not asked."""
        return supports(self._known(scheduler))

    def reach(self, scheduler: str, cfg: Mapping[str, Any] | None = None) -> None:
        """Ask the scheduler whether it is there; ``cfg`` may tell where.

        Raises :class:`LaunchError` when it cannot be asked.
        """
        with _asking(f"ask {scheduler}"):
            reach(self._known(scheduler), cfg or {})

    def submit(self, prepared: Prepared, name: str) -> str:
        """Hand the app over under this name and return its handle.

        Where ids are names (``local_detached``) a second submit returns the first one's handle.
        Raises :class:`LaunchError`.
        """
        app = copy.deepcopy(prepared.app)
        app.name = name
        try:
            info = self._runner.dryrun(
                app, prepared.scheduler, prepared.cfg, workspace=prepared.workspace
            )
            handle: str = self._runner.schedule(info)
        except Exception as error:
            # Whoever lost a race, or heard no answer, may find the app all the same.
            found = self.find(name, prepared.scheduler, self.app_id(prepared, name))
            if found is None:
                raise _refused(f"submit {name} to {prepared.scheduler}", error) from error
            return found
        return handle

    def app_id(self, prepared: Prepared, name: str) -> str | None:
        """Return the id that the app gets under this name, None where none follows from it."""
        backend = self._known(prepared.scheduler)
        return backend.app_id(name, prepared.cfg) if isinstance(backend, Names) else None

    def find(self, name: str, scheduler: str, app_id: str | None = None) -> str | None:
        """Return the handle of the app that was submitted under this name, or None.

        ``app_id`` is its id where that was known beforehand (:meth:`app_id`).

        Raises :class:`LaunchError` when the scheduler cannot be asked.
        """
        backend = self._known(scheduler)
        with _asking(f"find {name} at {scheduler}"):
            if isinstance(backend, Detailed):
                own = app_id or name
                detail = backend.detail(own)
                exists = detail is not None and detail.raw != _UNSTARTED
                return make_app_handle(scheduler, _SESSION, own) if exists else None
            ids = [app.app_id for app in backend.list() if _was_named(name, app.app_id, app.name)]
            return make_app_handle(scheduler, _SESSION, ids[0]) if ids else None

    def status(self, handle: str) -> SchedulerStatus:
        """Return what the scheduler says now; its ``state`` is None when it knows no such app.

        Raises :class:`LaunchError` when the scheduler cannot be asked.
        """
        backend, app_id = self._parse(handle)
        with _asking(f"ask for {handle}"):
            return _translate(self._ask(handle, backend, app_id))

    def cancel(self, handle: str) -> None:
        """Ask for the app's end; an app that has ended for good or is unknown is left alone.

        Returns at once. Raises :class:`LaunchError` when the scheduler cannot be asked.
        """
        backend, app_id = self._parse(handle)
        status = self.status(handle)
        if not status.terminal:
            with _asking(f"cancel {handle}"):
                backend.cancel(app_id)
        elif status.may_return:
            # Refused by many a scheduler where the app has ended for good: then all is well.
            with contextlib.suppress(LaunchError), _asking(f"cancel {handle}"):
                backend.cancel(app_id)

    def read_log(self, handle: str, replica: int = 0, offset: int = 0) -> tuple[str, int]:
        """Return new output of the ``replica``-th node, and the offset to go on from.

        Whole lines only until the app has ended. The offset outlives the process; its unit is the
        scheduler's. Raises :class:`LaunchError`.
        """
        backend, app_id = self._parse(handle)
        with _asking(f"read the log of {handle}"):
            # Asked before reading: what was written by then is what the end leaves.
            answer = self._recent(handle, backend, app_id)
            over = _translate(answer).terminal
            if isinstance(backend, KeepsOutput):
                output = _output(backend, app_id, answer, replica)
                chunk = logs.read(output, offset, partial=over) if output else None
                return (chunk.text, offset + chunk.length) if chunk else ("", offset)
            lines = list(itertools.islice(_lines(backend, app_id, answer, replica), offset, None))
            if lines and not lines[-1].endswith("\n") and not over:
                lines.pop()
            return "".join(lines), offset + len(lines)

    def last_lines(self, handle: str, replica: int = 0, count: int = 20) -> list[str]:
        """Return the last lines of a replica's output; none when they cannot be read."""
        backend, app_id = self._parse(handle)
        with _asking(f"read the log of {handle}"):
            answer = self._recent(handle, backend, app_id)
            if isinstance(backend, KeepsOutput):
                output = _output(backend, app_id, answer, replica)
                return logs.tail(output, count) if output else []
            lines = deque(_lines(backend, app_id, answer, replica), maxlen=count)
            return [line.rstrip("\n") for line in lines]

    def log_location(self, handle: str, replica: int = 0) -> str | None:
        """Return the absolute path, or the address, under which people find a replica's log."""
        backend, app_id = self._parse(handle)
        with _asking(f"ask for {handle}"):
            answer = self._recent(handle, backend, app_id)
            if isinstance(backend, KeepsOutput):
                output = _output(backend, app_id, answer, replica)
                return str(output) if output else None
            return _page(answer)

    def page(self, handle: str) -> str | None:
        """Return the address of the scheduler's own page of an app, None where it has none.

        Raises :class:`LaunchError` when the scheduler cannot be asked.
        """
        backend, app_id = self._parse(handle)
        with _asking(f"ask for {handle}"):
            if isinstance(backend, KeepsOutput):
                return None
            return _page(self._recent(handle, backend, app_id))

    def accelerators(self, prepared: Prepared) -> int:
        """Return how many GPUs the whole app asks for."""
        return sum(role.num_replicas * max(0, role.resource.gpu) for role in prepared.app.roles)

    def _recent(self, handle: str, backend: Scheduler, app_id: str) -> Any:
        """Return what the scheduler has just said of an app; ask it where that is long ago."""
        about, since_s, answer = self._heard
        if about == handle and time.monotonic() - since_s < _FRESH_S:
            return answer
        return self._ask(handle, backend, app_id)

    def _ask(self, handle: str, backend: Scheduler, app_id: str) -> Any:
        """Ask the scheduler about an app: what it details, else what TorchX describes."""
        self._heard = "", 0.0, None
        detailed = isinstance(backend, Detailed)
        answer = backend.detail(app_id) if detailed else backend.describe(app_id)
        self._heard = handle, time.monotonic(), answer
        return answer

    def _known(self, name: str) -> Scheduler:
        check_scheduler(name, self._factories)
        with self._lock:
            if name not in self._schedulers:
                with _asking(f"set up {name}"):
                    try:
                        self._runner.scheduler_run_opts(name)
                    except ImportError as error:
                        problem = f"{name} needs a package that is missing: {error}"
                        raise ConfigurationError("scheduler", problem) from error
            return self._schedulers[name]

    def _remember(self, name: str) -> SchedulerFactory:
        """Return a factory that keeps what it makes, since the runner does not show it."""

        def create(session_name: str, **kwargs: object) -> Scheduler:
            self._schedulers[name] = self._factories[name](session_name, **kwargs)
            return self._schedulers[name]

        return create

    def _parse(self, handle: str) -> tuple[Scheduler, str]:
        with _asking(f"read the handle {handle!r}"):
            scheduler, _, app_id = parse_app_handle(handle)
        return self._known(scheduler), app_id


def _output(
    backend: KeepsOutput, app_id: str, detail: SchedulerStatus | None, replica: int
) -> logs.Output | None:
    if detail is None or replica >= len(detail.replicas):
        return None
    chosen = detail.replicas[replica]
    return backend.output(app_id, chosen.role, chosen.id)


def _page(answer: SchedulerStatus | DescribeAppResponse | None) -> str | None:
    return (answer.ui_url or None) if isinstance(answer, DescribeAppResponse) else None


def _lines(
    backend: Scheduler,
    app_id: str,
    answer: SchedulerStatus | DescribeAppResponse | None,
    replica: int,
) -> Iterator[str]:
    if isinstance(answer, DescribeAppResponse):
        roles = [role.name for role in answer.roles]
    else:
        roles = [each.role for each in answer.replicas] if answer else []
    return (
        iter(backend.log_iter(app_id, roles[0], replica, should_tail=False)) if roles else iter(())
    )


def _was_named(name: str, app_id: str, shown: str) -> bool:
    """Tell whether an app got this name, to which TorchX adds a suffix on some schedulers."""
    own = app_id.rpartition(":")[2]
    return name in (own, shown) or own.startswith(f"{name}-")


def _translate(described: SchedulerStatus | DescribeAppResponse | None) -> SchedulerStatus:
    """Return an answer in our words.

    TorchX does not tell a failure from a preemption that is requeued.
    """
    if described is None or isinstance(described, SchedulerStatus):
        return described or SchedulerStatus(state=None)
    return SchedulerStatus(
        state=str(described.state),
        raw=str(described.state),
        may_return=described.state is AppState.FAILED,
        restart=described.num_restarts,
        replicas=tuple(
            ReplicaStatus(role=group.role, id=r.id, state=str(r.state), host=r.hostname or None)
            for group in described.roles_statuses
            for r in group.replicas
        ),
        message="" if described.msg == NONE else described.msg,
    )


@contextlib.contextmanager
def _asking(what: str) -> Iterator[None]:
    """Turn whatever a scheduler raises into :class:`LaunchError`."""
    try:
        yield
    except EttError:
        raise
    except Exception as error:
        raise _refused(what, error) from error


def _refused(what: str, error: Exception) -> LaunchError:
    log.debug("Could not %s", what, exc_info=error)
    return LaunchError(f"could not {what}: {type(error).__name__}: {error}")
