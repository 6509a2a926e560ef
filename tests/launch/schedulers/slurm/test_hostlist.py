"""Slurm's short form of a list of nodes."""

from __future__ import annotations

import pytest

from airflow_ett.launch.schedulers.slurm.hostlist import expand


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("n1", ["n1"]),
        ("n1,n2", ["n1", "n2"]),
        ("n1, n2 n3", ["n1", "n2", "n3"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[1-2,5,7-8]", ["n1", "n2", "n5", "n7", "n8"]),
        ("gpu-[008-011]", ["gpu-008", "gpu-009", "gpu-010", "gpu-011"]),
        ("rack[1-2]-n[1-2]", ["rack1-n1", "rack1-n2", "rack2-n1", "rack2-n2"]),
        ("n[1-2]-ib,head,x[03]", ["n1-ib", "n2-ib", "head", "x03"]),
        ("n[99-101]", ["n99", "n100", "n101"]),
    ],
)
def test_it_is_expanded_in_order(text: str, names: list[str]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize("text", ["n[1-2", "n1]", "n[1[2]]"])
def test_brackets_that_do_not_match_are_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="brackets do not match"):
        expand(text)
