"""The ``[ett]`` options, from the environment and from ``airflow.cfg``."""

from __future__ import annotations

import re
import sys
from configparser import ConfigParser
from pathlib import Path
from types import SimpleNamespace

import pytest

from airflow_ett import config
from airflow_ett.errors import ConfigurationError
from airflow_ett.metric import COMPONENTS
from airflow_ett.metric.phases import configured


def _load(home: Path, **options: str) -> config.Settings:
    environ = {f"AIRFLOW__ETT__{name.upper()}": text for name, text in options.items()}
    return config.load({"AIRFLOW_HOME": str(home), **environ})


def test_components_are_the_default_ones_unless_told_otherwise(tmp_path: Path) -> None:
    assert configured(_load(tmp_path)) == COMPONENTS


def test_owners_and_phases_of_components(tmp_path: Path) -> None:
    (tmp_path / "airflow.cfg").write_text(
        "[ett]\nphase_components = evaluation=shutdown,\n  my_phase = trainer_init,\n"
    )
    settings = _load(tmp_path, component_owners="pt2_compile=compiler-team, wasted = storage")
    components = configured(settings)
    assert components["pt2_compile"].owner == "compiler-team"
    assert components["wasted"].owner == "storage"
    assert components["effective"].owner == COMPONENTS["effective"].owner
    assert components.of("evaluation") == "shutdown"
    assert components.of("my_phase") == "trainer_init"


@pytest.mark.parametrize(
    ("option", "text", "problem"),
    [
        ("component_owners", "wasted", "'wasted' is not of the form"),
        ("component_owners", "shutdown=a, wasted=", "'wasted=' is not of the form"),
        ("component_owners", "=storage", "'=storage' is not of the form"),
        ("component_owners", "wasted=a, wasted=b", "'wasted' is given twice"),
        ("component_owners", "storage=wasted", "no component 'storage'; the components are sched"),
        ("phase_components", "evaluation shutdown", "'evaluation shutdown' is not of the form"),
        ("phase_components", "evaluation=nowhere", "no component 'nowhere'"),
        ("phase_components", "replay=effective", "replay=effective: effective neither"),
    ],
)
def test_a_bad_value_is_named(tmp_path: Path, option: str, text: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem) as raised:
        configured(_load(tmp_path, **{option: text}))
    assert raised.value.parameter == f"[ett] {option}"


def test_the_reaper_reports_unless_told_to_cancel(tmp_path: Path) -> None:
    assert _load(tmp_path).reaper == "report"
    assert _load(tmp_path, reaper="cancel").reaper == "cancel"
    with pytest.raises(ConfigurationError, match="is report or cancel, not 'yes'") as raised:
        _load(tmp_path, reaper="yes")
    assert raised.value.parameter == "[ett] reaper"


def test_the_run_root_is_a_folder_or_a_uri(tmp_path: Path) -> None:
    assert _load(tmp_path).run_root == tmp_path / "ett" / "runs"
    assert _load(tmp_path, run_root="file:///runs/").run_root == Path("/runs")
    assert _load(tmp_path, run_root="s3://bucket/runs/").run_root == "s3://bucket/runs"


def test_what_trainings_leave_is_kept_where_folders_are_shared_or_where_told(
    tmp_path: Path,
) -> None:
    assert _load(tmp_path).cache_root == f"{tmp_path}/ett/cache"
    assert _load(tmp_path, run_root="s3://bucket/runs").cache_root == ""
    assert _load(tmp_path, api_url="https://airflow.example.com").cache_root == ""
    told = {"run_root": "s3://bucket/runs", "cache_root": "s3://bucket/cache/"}
    assert _load(tmp_path, **told).cache_root == "s3://bucket/cache"
    assert _load(tmp_path, cache_root="/fast/cache").cache_root == "/fast/cache"


def test_resources_are_a_json_object_that_may_span_lines(tmp_path: Path) -> None:
    assert _load(tmp_path).resources == {}
    (tmp_path / "airflow.cfg").write_text('[ett]\nresources = {\n  "a": {"gpu": 8},\n  "b": {}}\n')
    assert _load(tmp_path).resources == {"a": {"gpu": 8}, "b": {}}
    for text, problem in (
        ("[]", "must be a JSON object"),
        ("{'a': 1}", "is no JSON: Expecting"),
        ('{"a": {"cpu": 1, "gpu": 1, "cpu": 2}}', "'cpu' is given twice"),
    ):
        with pytest.raises(ConfigurationError, match=problem) as raised:
            _load(tmp_path, resources=text)
        assert raised.value.parameter == "[ett] resources"


def test_a_percent_sign_that_airflow_cannot_read_is_told_without_the_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = ConfigParser()
    conf.read_string("[ett]\napi_secret = s3cr%t\n")
    monkeypatch.setitem(sys.modules, "airflow.configuration", SimpleNamespace(conf=conf))
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    monkeypatch.delenv("AIRFLOW__ETT__API_SECRET", raising=False)
    with pytest.raises(ConfigurationError, match="% is written %%") as raised:
        config.load()
    assert raised.value.parameter == "[ett] api_secret"
    assert "s3cr" not in str(raised.value)


@pytest.mark.parametrize(
    ("option", "text", "problem"),
    [
        ("run_root", "runs", "must be an absolute path"),
        ("run_root", "https://airflow.example.com", r"the API is \[ett\] api_url"),
        ("run_root", "s3://key:hunter2@bucket/runs", "without a user or a password"),
        ("cache_root", "cache", "must be an absolute path"),
        ("cache_root", "s3://key:hunter2@bucket/cache", "without a user or a password"),
        ("api_url", "airflow.example.com", "must be an http:// or https:// address"),
        ("api_url", "https://", "must be an http:// or https:// address"),
        ("api_url", "https://me:hunter2@airflow.example.com", "without a user or a password"),
    ],
)
def test_an_address_that_cannot_be_used_is_named(
    tmp_path: Path, option: str, text: str, problem: str
) -> None:
    with pytest.raises(ConfigurationError, match=problem) as raised:
        _load(tmp_path, **{option: text})
    assert raised.value.parameter == f"[ett] {option}"
    assert "hunter2" not in str(raised.value)


def test_a_secret_is_not_shown_and_comes_from_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = _load(tmp_path, api_secret="hunter2" * 5)
    assert settings.api_secret == "hunter2" * 5
    assert "hunter2" not in repr(settings)
    pytest.importorskip("airflow")
    monkeypatch.setenv("AIRFLOW__ETT__API_SECRET_CMD", "echo from-a-command")
    assert config.load().api_secret == "from-a-command"


def test_the_reference_has_every_variable_that_changes_a_trainer(repo: Path) -> None:
    page = (repo / "docs" / "reference.md").read_text()
    told = re.findall(r"^\| `(ETT_\w+)` \|", page, re.MULTILINE)
    assert sorted(told) == sorted([*config.SWITCHES.values(), config.EVERY_VARIABLE])
