"""The digest of a request: of what a scheduler would be asked, and of nothing else."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from airflow_ett.launch.request import Request

REQUEST = Request("train", ["--m", "x"], "slurm", cfg={"a": 1, "b": 2}, env={"HF_TOKEN": "s3cret"})


@pytest.mark.parametrize(
    "change",
    [
        {"component": "dist.torchrun"},
        {"component_args": ["--m", "y"]},
        {"scheduler": "kubernetes"},
        {"cfg": {"a": 1, "b": 3}},
        {"resource": "gpu"},
        {"env": {"HF_TOKEN": "other"}},
        {"checkpoint_uri": "/fast"},
        {"resume": "never"},
        {"init_from": "/c/9"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_it_changes_with_what_is_asked(change: dict[str, Any]) -> None:
    assert replace(REQUEST, **change).digest() != REQUEST.digest()


def test_it_does_not_change_with_what_becomes_of_it_nor_with_the_order_of_options() -> None:
    same = replace(REQUEST, max_relaunches=9, failures_per_hour=2.0, cfg={"b": 2, "a": 1})
    same = replace(same, cache_root="/fast/cache")
    assert same.digest() == REQUEST.digest()


def test_it_survives_json() -> None:
    assert Request(**json.loads(json.dumps(REQUEST.as_dict()))).digest() == REQUEST.digest()


def test_one_that_an_older_version_stored_keeps_no_caches() -> None:
    stored = REQUEST.as_dict()
    del stored["cache_root"]
    assert Request(**stored) == REQUEST
    assert REQUEST.cache_root == ""


def test_nothing_can_be_read_from_it() -> None:
    assert len(REQUEST.digest()) == 16
    assert set(REQUEST.digest()) <= set("0123456789abcdef")
