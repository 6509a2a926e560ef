"""The ``[ett]`` options, from the environment and from ``airflow.cfg``."""

from __future__ import annotations

from pathlib import Path

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
