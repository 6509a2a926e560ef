"""Where job logs lie by the options, and who gets which token for them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from airflow_ett import config
from airflow_ett.errors import ConfigurationError, JobLogError
from airflow_ett.events import JobKey
from airflow_ett.launch.root import Root
from airflow_ett.storage.tokens import Role, verify

KEY = JobKey("default", "dag", "run", "train")
SECRET = "0123456789abcdef" * 2
URL = "https://airflow.example.com"
API = f"{URL}/ett/api/v1"


def options(tmp_path: Path, **values: str) -> config.Settings:
    environ = {f"AIRFLOW__ETT__{name.upper()}": value for name, value in values.items()}
    return config.load({"AIRFLOW_HOME": str(tmp_path), **environ})


def test_the_api_goes_before_the_run_root(tmp_path: Path) -> None:
    assert Root.of(options(tmp_path)) == Root(f"{tmp_path}/ett/runs")
    assert Root.of(options(tmp_path, run_root="s3://bucket/runs/")) == Root("s3://bucket/runs")
    at_api = Root.of(options(tmp_path, run_root="/r", api_url=f"{URL}/", api_secret=SECRET))
    assert at_api == Root(API, SECRET)
    assert SECRET not in repr(at_api)


@pytest.mark.parametrize("secret", ["", "hunter2"])
def test_the_api_needs_a_secret_that_nobody_guesses(tmp_path: Path, secret: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        Root.of(options(tmp_path, api_url=URL, api_secret=secret))
    assert raised.value.parameter == "[ett] api_secret"
    assert not secret or secret not in str(raised.value)


def test_a_jobs_place_is_its_own_below_each_root() -> None:
    assert Root("/runs").place(KEY) == f"/runs/{KEY.path}"
    assert Root("s3://b/r").place(KEY) == f"s3://b/r/{KEY.path}"
    assert Root(API, SECRET).place(KEY) == f"{API}/logs/{KEY.id}"


@pytest.mark.parametrize("address", ["/runs", "s3://b/r", API])
def test_a_root_knows_the_places_of_a_job(address: str) -> None:
    root, second = Root(address, SECRET), replace(KEY, generation=2)
    assert root.holds(root.place(second), second)
    assert not root.holds(root.place(replace(second, deployment="staging")), second)
    for other in ("/elsewhere", "s3://b/other", "https://other.example.com/ett/api/v1"):
        assert not root.holds(Root(other, SECRET).place(second), second)


@pytest.mark.parametrize(
    "place",
    [
        f"https://evil.example.com/ett/api/v1/logs/{KEY.id}",
        f"{API}.evil.example.com/logs/{KEY.id}",
        f"{API}/logs/../{KEY.id}",
        f"{API}/logs/",
        f"{API}/logs/{KEY.id}?x=1",
    ],
)
def test_no_token_goes_to_an_address_that_is_not_the_apis(place: str) -> None:
    """Places come back from XComs, which a task may have written."""
    with pytest.raises(JobLogError, match="no place of") as raised:
        Root(API, SECRET).open(place)
    assert SECRET not in str(raised.value)


def test_a_place_at_the_api_is_none_without_one() -> None:
    with pytest.raises(JobLogError, match=r"api_url: that says nothing"):
        Root("/runs").open(f"{API}/logs/{KEY.id}")


def test_trainers_get_a_token_of_their_own(tmp_path: Path) -> None:
    token = Root(API, SECRET).trainer_token(KEY)
    grant = verify(SECRET, token, job_id=KEY.id, role=Role.TRAINER)
    assert grant.life_s == 14 * 86_400


def test_a_root_that_is_away_names_its_option(tmp_path: Path) -> None:
    (tmp_path / KEY.base.parent).mkdir(parents=True)
    (tmp_path / KEY.base).write_text("a file stands here")
    with pytest.raises(JobLogError, match=r"\[ett\] run_root"):
        Root(str(tmp_path)).newest_generation(KEY)
