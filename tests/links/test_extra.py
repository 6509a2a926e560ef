"""What Airflow is told of the links."""

from __future__ import annotations

import pytest

pytest.importorskip("airflow")

from airflow_ett.links import LINKS
from airflow_ett.provider import get_provider_info


def test_the_provider_lists_every_link() -> None:
    classes = [type(link) for link in LINKS]
    listed = get_provider_info()["extra-links"]
    assert listed == [f"{link.__module__}.{link.__qualname__}" for link in classes]


def test_links_differ_in_name_and_key() -> None:
    assert len({link.name for link in LINKS}) == len({link.xcom_key for link in LINKS}) == 4
