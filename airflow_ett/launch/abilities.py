"""What a scheduler may be able to do beyond TorchX's own interface. The gateway asks for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from airflow_ett.launch.schedulers.logs import Output
from airflow_ett.launch.status import SchedulerStatus


@runtime_checkable
class Detailed(Protocol):
    """A scheduler that tells more than TorchX asks for."""

    def detail(self, app_id: str) -> SchedulerStatus | None:
        """Return all that is known of an app, or None when there is none of that id."""


@runtime_checkable
class KeepsOutput(Protocol):
    """A scheduler that keeps what a replica prints, where it can be read on from any offset.

    The others' output is read through TorchX, from its first line.
    """

    def output(self, app_id: str, role: str, replica: int) -> Output:
        """Return a replica's output, which need not exist yet."""


@runtime_checkable
class Names(Protocol):
    """A scheduler whose apps' ids follow from their names, so that a name is submitted once."""

    def app_id(self, name: str, cfg: Mapping[str, Any]) -> str:
        """Return the id of an app that is submitted under this name with these run options."""


@runtime_checkable
class AvoidsHosts(Protocol):
    """A scheduler that can keep an app away from hosts. None of TorchX's own offers that."""

    def avoiding(self, cfg: Mapping[str, Any], hosts: Sequence[str]) -> Mapping[str, Any]:
        """Return run options by which an app comes to none of ``hosts``, the worst of them first.

        Where ``cfg`` allows only so many hosts, enough of them must be left for the app.
        """


@runtime_checkable
class Reachable(Protocol):
    """A scheduler that can be asked for nothing but whether it is there.

    The others are asked for a list of their apps.
    """

    def reach(self, cfg: Mapping[str, Any]) -> None:
        """Return once it has answered. Raises :class:`airflow_ett.errors.LaunchError` otherwise."""
