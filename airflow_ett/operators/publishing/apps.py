"""The app of a publishing task, as its task sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from airflow_ett.errors import LaunchError, PublishError
from airflow_ett.events import JobKey
from airflow_ett.hooks.masking import redact
from airflow_ett.hooks.torchx import TorchXHook
from airflow_ett.launch import resources
from airflow_ett.launch.publishing import Asked, PublishApp
from airflow_ett.launch.root import Root
from airflow_ett.publish.request import Request

if TYPE_CHECKING:
    from airflow.sdk.types import Logger


class TaskApp:
    """One task instance's app. It is also what a kill needs (see ``operators.stopping``)."""

    def __init__(self, key: JobKey, log: Logger) -> None:
        # Importing TorchX takes a while, which DAG parsing is spared.
        from airflow_ett.launch.gateway import Gateway

        self._hook = TorchXHook()
        self._app = PublishApp(Root.of(self._hook.settings), key, Gateway())
        self._log = log

    def begin(
        self,
        request: Request,
        scheduler: str,
        *,
        cfg: Mapping[str, Any] | None,
        resource: resources.Asked,
        image: str | None,
        tries: tuple[int, int],
    ) -> None:
        """Submit, or go on with what was submitted. ``tries``: this one's number, and the most.

        Raises :class:`ConfigurationError` that names the parameter, :class:`PublishError` when the
        scheduler refuses or does not answer.
        """
        self._hook.check_deployment(scheduler)
        named = self._hook.settings.resources
        wanted, terms = resources.resolve(named, resource, scheduler)
        asked = Asked(
            request={**asdict(request), "transforms": list(request.transforms)},
            scheduler=scheduler,
            cfg={**terms, **(cfg or {})},
            resource=wanted,
            image=image,
        )
        try:
            app = self._app.begin(asked, try_number=tries[0], max_tries=tries[1])
        except LaunchError as error:
            raise PublishError(f"Nothing was published: {redact(str(error))}") from error
        self._log.info("Published by %s", app.handle)

    def result(self) -> dict[str, Any] | None:
        """Return what was published, None while the app is at it or does not answer.

        Raises :class:`PublishError` when it failed.
        """
        try:
            return self._app.result()
        except (LaunchError, OSError) as error:
            self._log.warning("%s Asking again.", redact(str(error)))
            return None

    def collect(self) -> dict[str, Any]:
        """Return what an app that is over has published, and hand on what it printed.

        Raises :class:`PublishError` when it failed.
        """
        for line in self._app.output():
            self._log.info("%s", redact(line))
        published = self.result()
        if published is None:
            raise PublishError("The app was over, and is not any more; try again.")
        self._app.forget()
        return published

    def user_cancel(self, wait_s: float) -> None:
        """End the app."""
        self._app.cancel()

    def user_restart(self) -> None:
        """End the app; the next try submits another."""
        self._app.cancel()
