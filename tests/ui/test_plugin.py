"""What Airflow loads in every process, and what it must not load there."""

import asyncio
import runpy
import subprocess
import sys
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("airflow")

HEAVY = ("fastapi", "jinja2", "plotly", "airflow_ett.store", "airflow_ett.ui.app")


def test_loading_the_plugin_makes_no_page() -> None:
    code = (
        "import sys; import airflow.plugins_manager; before = set(sys.modules);"
        "import airflow_ett.ui.plugin; print(*(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.splitlines()[-1].split()
    assert "airflow_ett.ui.plugin" in loaded
    assert [name for name in loaded if name.startswith(HEAVY)] == []


def test_what_is_loaded_at_the_first_request_is_no_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_ett.ui import plugin

    frozen: list[bool] = []
    monkeypatch.setattr("gc.freeze", lambda: frozen.append("airflow_ett.ui.app" in sys.modules))
    answers: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request"}

    async def send(message: Any) -> None:
        answers.append(message)

    app = plugin.LazyApp()
    scope = {"type": "http", "method": "GET", "path": "/fleet", "query_string": b"", "headers": []}
    for _ in range(2):
        asyncio.run(app(scope, receive, send))
    assert answers[0]["status"] == 401
    assert frozen == [True]


def views() -> dict[str, dict[str, Any]]:
    from airflow_ett.ui.plugin import EttPlugin

    return {view["destination"]: view for view in EttPlugin.external_views}


def test_every_place_has_its_view() -> None:
    assert {place: (view["url_route"], view["href"]) for place, view in views().items()} == {
        "dag": ("ett", "ett/dag/{DAG_ID}"),
        "dag_run": ("ett-run", "ett/run/{DAG_ID}?run_id={RUN_ID}"),
        "task_instance": (
            "ett-task",
            "ett/run/{DAG_ID}?run_id={RUN_ID}&task_id={TASK_ID}&map_index={MAP_INDEX}",
        ),
        "nav": ("ett-fleet", "ett/fleet"),
    }
    assert views()["nav"]["nav_top_level"]


def test_addresses_are_those_of_the_app() -> None:
    from airflow_ett.ui.app import create_app
    from airflow_ett.ui.plugin import EttPlugin

    (served,) = EttPlugin.fastapi_apps
    assert served["url_prefix"] == "/ett"
    paths = {getattr(route, "path", "") for route in create_app().routes}
    for view in views().values():
        path = view["href"].split("?")[0].removeprefix("ett").replace("{DAG_ID}", "{dag_id}")
        assert path in paths


def test_airflow_takes_every_view_and_those_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow import plugins_manager
    from airflow.api_fastapi.core_api.datamodels.plugins import ExternalViewResponse

    from airflow_ett.ui.plugin import EttPlugin

    class Other(plugins_manager.AirflowPlugin):
        name = "other"
        external_views = [  # noqa: RUF012
            {"name": name, "href": "x", "destination": place, "url_route": route}
            for name, place, route in (
                ("Costs", "dag", "costs"),
                ("ETT%", "dag_run", "ett-other"),
                ("HITL Review", "task_instance", "hitl-review"),
            )
        ]

    monkeypatch.setattr(plugins_manager, "_get_plugins", lambda: ([Other(), EttPlugin()], {}))
    plugins_manager._get_ui_plugins.cache_clear()
    try:
        found, _ = plugins_manager._get_ui_plugins()
    finally:
        plugins_manager._get_ui_plugins.cache_clear()
    assert len(found) == 3 + 4
    assert len({view["url_route"] for view in found}) == len(found)
    for view in found:
        shown = ExternalViewResponse.model_validate(view)
        assert shown.icon is None


@pytest.mark.parametrize("installed", [True, False])
def test_the_shim_steps_back_for_the_entry_point(
    repo: Path, monkeypatch: pytest.MonkeyPatch, installed: bool
) -> None:
    entry = EntryPoint("airflow_ett", "airflow_ett.ui.plugin:EttPlugin", "airflow.plugins")
    found = EntryPoints([entry] if installed else [])
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: found)
    module = runpy.run_path(str(repo / "plugins" / "airflow_ett_plugin.py"))
    assert ("EttPlugin" in module) != installed
