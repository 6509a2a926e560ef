"""Addresses: relative within Airflow, whole or absent outside of it, never with a secret."""

from __future__ import annotations

from urllib.parse import urljoin

import pytest

pytest.importorskip("airflow")

from airflow.sdk.log import mask_secret, redact

from airflow_ett.links.addresses import TaskAt, web_address, without_secrets

TASK = TaskAt("a dag", "scheduled__2026-01-01T00:00:00+00:00", "group.train")


@pytest.mark.parametrize("base", ["http://host/", "http://host/team-a/"])
def test_r32_addresses_within_airflow_keep_its_base_path(base: str) -> None:
    run = "scheduled__2026-01-01T00%3A00%3A00%2B00%3A00"
    tab = f"{base}dags/a%20dag/runs/{run}/tasks/group.train"
    assert urljoin(base, TASK.xcom_page("logs")) == f"{tab}/xcom?key_pattern=logs"
    assert urljoin(base, TASK.ett_page) == f"{tab}/plugin/ett-task"
    mapped = TaskAt(TASK.dag_id, TASK.run_id, TASK.task_id, 3)
    assert urljoin(base, mapped.xcom_page("a b")) == f"{tab}/mapped/3/xcom?key_pattern=a%20b"
    assert urljoin(base, mapped.ett_page) == f"{tab}/mapped/3/plugin/ett-task"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (None, ""),
        ("/runs/job/log.txt", ""),
        ("file:///runs/job", ""),
        ("s3://bucket/job", ""),
        ("javascript:alert(1)//https://", ""),
        ("https://cluster/jobs/7?tab=log#end", "https://cluster/jobs/7?tab=log#end"),
        ("http://cluster/jobs/7", "http://cluster/jobs/7"),
        ("https://cluster/***/7", ""),
    ],
)
def test_only_a_whole_web_address_is_one(text: str | None, address: str) -> None:
    assert web_address(text) == address


@pytest.mark.usefixtures("_fresh_masker")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (None, None),
        ("/runs/job/log.txt", "/runs/job/log.txt"),
        ("/runs/hunter2hunter2/log.txt", "/runs/***/log.txt"),
        ("https://c/jobs/7?tab=log#end", "https://c/jobs/7?tab=log#end"),
        ("https://me:hunter2@c:8443/jobs/7", "https://c:8443/jobs/7"),
        ("s3://id:hunter2@bucket/job", "s3://bucket/job"),
        ("https://c/7?tab=log&access_token=abc&project=p", "https://c/7?tab=log&project=p"),
        ("https://c/7?q=hunter2hunter2&p=1", "https://c/7?p=1"),
        ("https://c/hunter2hunter2/7", "https://c/***/7"),
    ],
)
def test_no_secret_is_shown(text: str | None, shown: str | None) -> None:
    mask_secret("hunter2hunter2")
    assert without_secrets(text, redact) == shown
