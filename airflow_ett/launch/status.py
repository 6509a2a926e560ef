"""What a scheduler says about an app, in words that every scheduler shares. No TorchX needed."""

from __future__ import annotations

from dataclasses import dataclass

TERMINAL_STATES = frozenset({"SUCCEEDED", "FAILED", "CANCELLED"})
"""TorchX's names of the states from which an app normally does not come back."""


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """One replica (node) of an app; what a scheduler does not tell is None."""

    role: str
    id: int
    state: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    host: str | None = None


@dataclass(frozen=True, slots=True)
class SchedulerStatus:
    """An app as its scheduler sees it.

    ``state`` is TorchX's name of the state, or None when the scheduler does not know the app;
    ``raw`` the scheduler's own word, ``reason`` why it lets the app wait; ``restart`` how often it
    has started the app again (-1 where it does not tell), ``former`` its word for how the run
    before ended, where it tells. Times are UTC nanoseconds, None where unknown. ``may_return``: the
    state is terminal, but the scheduler may yet start the app again by itself. ``hopeless``: the
    app waits for what will not come, such as an image that does not exist. ``answered`` is False
    where the scheduler has not said whether it knows the app.
    """

    state: str | None
    raw: str = ""
    restart: int = 0
    allocated_ns: int | None = None
    started_ns: int | None = None
    ended_ns: int | None = None
    replicas: tuple[ReplicaStatus, ...] = ()
    message: str = ""
    reason: str = ""
    former: str = ""
    may_return: bool = False
    hopeless: bool = False
    answered: bool = True

    @property
    def hosts(self) -> tuple[str | None, ...]:
        """On which host each node of the app is; empty where the scheduler tells of none."""
        hosts = tuple(replica.host for replica in self.replicas)
        return hosts if any(hosts) else ()

    @property
    def terminal(self) -> bool:
        """Whether the state is one of :data:`TERMINAL_STATES`."""
        return self.state in TERMINAL_STATES
