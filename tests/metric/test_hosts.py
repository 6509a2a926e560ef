"""Lists of hosts for people."""

import pytest

from airflow_ett.metric.hosts import listed


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["vm"], "vm"),
        (["vm", "vm"], "vm"),
        (["n1", "n2", "n3"], "n[1-3]"),
        (["n1", "n2", "n3", "n07", "gpu-a"], "n[1-3,07],gpu-a"),
        (["n9", "n10", "n11"], "n[9,10-11]"),
        (["n3", "n1", "n2"], "n[3,1-2]"),
        (["n", "n1"], "n,n1"),
        (["gpu-017", "gpu-018", "cpu-018"], "gpu-[017-018],cpu-018"),
        (["7"], "7"),
    ],
)
def test_they_stand_in_their_order_and_short(names: list[str], text: str) -> None:
    assert listed(names) == text


def test_of_many_that_have_nothing_in_common_the_first_are_named() -> None:
    pods = [f"pool-{letter}-x" for letter in "abcdefghij"]
    assert listed(pods, most=2) == "pool-a-x,pool-b-x and 8 more"
    assert listed([*pods[:2], "n1", "n2"], most=2) == "pool-a-x,pool-b-x and 2 more"
