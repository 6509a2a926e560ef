"""The links themselves, as Airflow's operators declare them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, ClassVar

from airflow.sdk import BaseOperatorLink
from airflow.sdk.bases.xcom import BaseXCom

from airflow_ett.links.addresses import TaskAt, web_address

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey


class TrainingLink(BaseOperatorLink):
    """A link to one of a job's :class:`airflow_ett.launch.places.Places`.

    Each place is an XCom of its own under its name: what has no web address of its own, a file or a
    folder, is linked to the tab that shows it as text.
    """

    label: ClassVar[str]
    place: ClassVar[str]

    @property
    def name(self) -> str:
        """What the button says."""
        return self.label

    def address(self, task: TaskAt, place: str | None) -> str:
        """Return where the link leads, or '' for no link."""
        return web_address(place) or (task.xcom_page(self.place) if place else "")

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Say again what the try has pushed: Airflow asks when a task process ends its work."""
        task = TaskAt(ti_key.dag_id, ti_key.run_id, ti_key.task_id, ti_key.map_index)
        return self.address(task, BaseXCom.get_one(key=self.place, **asdict(task)))


class JobLink(TrainingLink):
    """The scheduler's own page of the app, where it has one."""

    label = "Training job"
    place = "page"


class EttLink(TrainingLink):
    """The ETT% tab of the task instance, whatever is known of the job."""

    label = "ETT%"
    place = "run_dir"

    def address(self, task: TaskAt, place: str | None) -> str:
        """Return the tab's address."""
        return task.ett_page


class LogsLink(TrainingLink):
    """What rank 0 prints."""

    label = "Training logs"
    place = "logs"


class CheckpointLink(TrainingLink):
    """The newest committed checkpoint."""

    label = "Checkpoint"
    place = "checkpoint"


LINKS: tuple[TrainingLink, ...] = (JobLink(), EttLink(), LogsLink(), CheckpointLink())
