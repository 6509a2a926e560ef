"""The whole app over a store with jobs of two Dags, and users of whom some may read one.

The store is shared with another Airflow, in which Dags of the same ids train, too.
"""

import os
import tempfile
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

# Airflow writes its configuration into its home when it is imported.
os.environ.setdefault("AIRFLOW_HOME", tempfile.mkdtemp(prefix="ett-api-"))

from airflow_ett.events import JobKey, LogWriter, RunDir
from airflow_ett.store import ingest_root, open_store, queries, upgrade

S = 1_000_000_000
BEGIN = 1_790_000_000 * S
SECRET_DAG = "secret-dag"
OTHER = "staging"
OTHER_RUN = "other-airflows-run"
API_SECRET = "a-secret-of-more-than-32-characters"


@dataclass
class Manager:
    """An auth manager: which Dags' runs each user may read, by the user's token."""

    rights: dict[str, set[str]]
    asked: list[str] = field(default_factory=list)

    async def get_user_from_token(self, token: str) -> Any:
        from jwt import ExpiredSignatureError, InvalidTokenError

        if token == "old":
            raise ExpiredSignatureError
        if token not in self.rights:
            raise InvalidTokenError
        return SimpleNamespace(get_name=lambda: token)

    def is_authorized_dag(
        self, *, method: str, access_entity: Any, details: Any, user: Any
    ) -> bool:
        self.asked.append(details.id)
        return details.id in self.rights[user.get_name()]

    def batch_is_authorized_dag(self, requests: Collection[Mapping[str, Any]], user: Any) -> bool:
        return all(self.is_authorized_dag(**request, user=user) for request in requests)

    def get_authorized_dag_ids(self, *, user: Any, method: str) -> set[str]:
        return self.rights[user.get_name()] - {"runs-are-closed"}


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> Manager:
    """anna reads ranker; root reads all; nemo reads none."""
    pytest.importorskip("airflow.api_fastapi")
    found = Manager(
        {"anna": {"ranker"}, "root": {"ranker", SECRET_DAG, "never-trained"}, "nemo": set()}
    )
    for module in ("airflow.api_fastapi.core_api.security", "airflow_ett.api.access"):
        monkeypatch.setattr(f"{module}.get_auth_manager", lambda: found)
    monkeypatch.setattr("airflow.models.dag.DagModel.get_team_name", lambda dag_id: None)
    return found


def _publish(run: RunDir) -> None:
    """Tell of 30 s of publishing into a registry whose address bears a password."""
    job = JobKey("default", "ranker", "run-0", "train").id
    log = LogWriter(run.launcher / "p.jsonl", job=job, writer="publish-1")
    place = "https://me:hush@registry.example/ranker"
    told = {"version": "7", "uri": f"{place}/7", "name": "ranker", "registry": place}
    times = {"begin": BEGIN + 200 * S, "end": BEGIN + 230 * S}
    log.append("published", told | times | {"bytes": 4096, "cursor": 2000}, time_ns=BEGIN + 231 * S)
    log.close()


@pytest.fixture(scope="session")
def filled_url(tmp_path_factory: pytest.TempPathFactory, write_job: Callable[..., RunDir]) -> str:
    """A database with five runs of ranker, a day apart, the first of them published, and two of the
    other Dag; of the other Airflow it has two of ranker and one of a Dag that never trained here.
    """
    folder = tmp_path_factory.mktemp("ett-api")
    url = f"sqlite:///{folder}/ett.db"
    upgrade(url)
    for day in range(5):
        ended, begin = day < 4, BEGIN + day * 86_400 * S
        run = write_job(folder / "runs", run_id=f"run-{day}", begin_ns=begin, ended=ended)
        if day == 0:
            _publish(run)
    for day in range(2):
        names = {"dag_id": SECRET_DAG, "run_id": f"run-{day}", "accelerators": 64}
        write_job(folder / "runs", begin_ns=BEGIN + day * 86_400 * S, **names)
    for dag_id, run_id, ended in (
        ("ranker", OTHER_RUN, True),
        ("ranker", f"{OTHER_RUN}-2", False),
        ("never-trained", OTHER_RUN, True),
    ):
        names = {"deployment": OTHER, "dag_id": dag_id, "run_id": run_id, "accelerators": 512}
        write_job(folder / "runs", begin_ns=BEGIN + 2 * 86_400 * S, ended=ended, **names)
    store = open_store(url)
    ingest_root(store, folder / "runs")
    store.close()
    return url


@pytest.fixture
def url(filled_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The same database, configured as the api-server's."""
    monkeypatch.setenv("AIRFLOW__ETT__SQL_ALCHEMY_CONN", filled_url)
    monkeypatch.setenv("AIRFLOW__ETT__API_SECRET", API_SECRET)
    return filled_url


@pytest.fixture
def jobs(url: str) -> dict[str, str]:
    """Job ids by Dag and run, such as ``ranker run-0``."""
    store = open_store(url)
    found = {f"{job.dag_id} {job.run_id}": job.job for job in queries.jobs(store)}
    store.close()
    return found


@pytest.fixture(scope="session")
def app() -> Any:
    """The whole app, as the plugin mounts it."""
    pytest.importorskip("airflow.api_fastapi")
    from airflow_ett.ui.app import create_app

    return create_app()


@pytest.fixture
def client(manager: Manager, url: str, app: Any) -> Callable[..., Any]:
    """Make a client of the app: ``client("anna")``; anonymous without a name."""
    from starlette.testclient import TestClient

    def make(user: str | None = None) -> TestClient:
        headers = {"Authorization": f"Bearer {user}"} if user else {}
        return TestClient(app, raise_server_exceptions=False, headers=headers)

    return make


@pytest.fixture
def root_folder(tmp_path: Path) -> Path:
    """A folder for the logs of a test's own jobs."""
    return tmp_path / "runs"
