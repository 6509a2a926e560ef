"""SQLite is one machine's: said at once, and not where one machine is all there is."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_ett import config
from airflow_ett.errors import ConfigurationError
from airflow_ett.hooks.deployment import check_database
from airflow_ett.hooks.torchx import TorchXHook
from airflow_ett.ui.plugin import EttPlugin

CLUSTERS = (
    "CeleryExecutor",
    "LocalExecutor,KubernetesExecutor",
    "airflow.providers.celery.executors.celery_executor.CeleryExecutor",
    "LocalExecutor:mine,my_company.executors.FarExecutor:far",
)


def settings(tmp_path: Path, **options: str) -> config.Settings:
    environ = {f"AIRFLOW__ETT__{name.upper()}": value for name, value in options.items()}
    return config.load({"AIRFLOW_HOME": str(tmp_path), **environ})


@pytest.mark.parametrize("executor", CLUSTERS)
def test_several_machines_cannot_use_an_sqlite_file(tmp_path: Path, executor: str) -> None:
    with pytest.raises(ConfigurationError, match=r"Postgres database, or set .* api_url") as raised:
        check_database(settings(tmp_path), executor)
    assert raised.value.parameter == "[ett] sql_alchemy_conn"
    postgres = settings(tmp_path, sql_alchemy_conn="postgresql+psycopg://db/ett")
    check_database(postgres, executor)
    at_api = settings(tmp_path, api_url="https://airflow.example.com", api_secret="x" * 32)
    check_database(at_api, executor)


@pytest.mark.parametrize(
    "executor", ["LocalExecutor", "LocalExecutor:mine", "airflow.executors.local.LocalExecutor"]
)
def test_one_machine_can(tmp_path: Path, executor: str) -> None:
    check_database(settings(tmp_path), executor)


def test_plugin_and_tasks_refuse_it_by_airflows_own_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__ETT__SQL_ALCHEMY_CONN", f"sqlite:///{tmp_path}/ett.db")
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", "CeleryExecutor")
    for check in (EttPlugin.on_load, lambda: TorchXHook().check_deployment("local_detached")):
        with pytest.raises(ConfigurationError, match="CeleryExecutor runs tasks on others"):
            check()
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", "LocalExecutor")
    EttPlugin.on_load()
    TorchXHook().check_deployment("local_detached")
