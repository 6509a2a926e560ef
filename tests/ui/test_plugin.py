"""What Airflow loads in every process, and what it must not load there."""

import runpy
import subprocess
import sys
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

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


def test_addresses_are_relative_and_unique() -> None:
    from airflow_ett.ui.plugin import EttPlugin

    (view,) = EttPlugin.external_views
    assert (view["destination"], view["url_route"]) == ("dag", "ett")
    assert view["href"] == "ett/dag/{DAG_ID}"
    assert EttPlugin.fastapi_apps[0]["url_prefix"] == "/ett"


@pytest.mark.parametrize("installed", [True, False])
def test_the_shim_steps_back_for_the_entry_point(
    repo: Path, monkeypatch: pytest.MonkeyPatch, installed: bool
) -> None:
    entry = EntryPoint("airflow_ett", "airflow_ett.ui.plugin:EttPlugin", "airflow.plugins")
    found = EntryPoints([entry] if installed else [])
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: found)
    module = runpy.run_path(str(repo / "plugins" / "airflow_ett_plugin.py"))
    assert ("EttPlugin" in module) != installed
