"""A task that shows links and goes through every state: running, retried, deferred, failed."""

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.providers.standard.triggers.file import FileTrigger
from airflow.sdk import DAG, BaseOperator, Param

from airflow_ett.launch.places import Places
from airflow_ett.links import LINKS, LinkBoard


class Linked(BaseOperator):
    """Shows the places of an app named after the try, then does what files tell it to."""

    operator_extra_links = LINKS

    def execute(self, context: Any) -> None:
        ti, place = context["ti"], Path(context["params"]["place"])
        names = ("dag_id", "run_id", "task_id", "map_index")
        app = f"app-{ti.try_number}"
        places = Places(
            "/runs/job", f"x://ett/{app}", f"https://me:pw@cluster/{app}", f"/{app}.log"
        )
        LinkBoard({name: getattr(ti, name) for name in names})(lambda: places, now=True)
        while not (place / f"raise-{ti.try_number}").exists():
            if (place / "defer").exists():
                self.defer(
                    trigger=FileTrigger(str(place / "resume"), recursive=False, poke_interval=0.2),
                    method_name="resume",
                )
            time.sleep(0.1)
        raise RuntimeError("told to fail")

    def resume(self, context: Any, event: Any = None) -> None:
        raise RuntimeError("told to fail after it was deferred")


with DAG(
    "linked",
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    params={"place": Param("", type="string")},
) as dag:
    Linked(task_id="train", retries=1, retry_delay=timedelta(seconds=1))
