"""Which hosts an app is kept away from, and what gives way to what."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_ett.launch.schedulers.slurm.avoidance import avoiding, exclusions, refuses_hosts

LOST = ["n2", "n7"]


@pytest.mark.parametrize(
    ("cfg", "failed"),
    [
        ({}, "n2,n7"),
        ({"exclude_failed_nodes": True, "exclude": "n1"}, "n2,n7"),
        ({"exclude": "n[6-8]"}, "n2"),
        ({"nodelist": "n[1-3],n9"}, "n7"),
        ({"nodelist": "n[1-7]"}, None),
        ({"exclude_failed_nodes": False}, None),
        ({"nodelist": "/shared/nodes"}, None),
        ({"exclude": "./nodes"}, None),
    ],
)
def test_the_users_own_words_come_first(cfg: dict[str, Any], failed: str | None) -> None:
    assert avoiding(cfg, LOST) == cfg | ({"failed_nodes": failed} if failed else {})


def test_what_is_no_name_of_a_node_is_left_out() -> None:
    assert avoiding({}, ["--bad", "n2", "a b"]) == {"failed_nodes": "n2"}


def test_the_earliest_loss_is_forgiven_first_and_the_users_never() -> None:
    assert list(exclusions("n1", "n2,n7")) == ["n1,n2,n7", "n1,n2", "n1"]
    assert list(exclusions(None, "n2")) == ["n2", None]
    assert list(exclusions("n1", None)) == ["n1"]
    assert list(exclusions(None, None)) == [None]


def test_a_refusal_for_the_nodes_is_told_from_others() -> None:
    told = "sbatch: error: Batch job submission failed: {}\n"
    assert refuses_hosts(told.format("Requested node configuration is not available"))
    assert refuses_hosts(told.format("Invalid node name specified"))
    assert not refuses_hosts(told.format("Socket timed out on send/recv operation"))
