"""How many GPUs ``--gres`` asks for, and whether the component asks for as many."""

from __future__ import annotations

import pytest

from airflow_ett.launch.schedulers.slurm.gres import contradiction, gpus


@pytest.mark.parametrize(
    ("gres", "count"),
    [
        ("gpu", 1),
        ("gpu:8", 8),
        ("gpu:0", 0),
        ("gpu:a100", 1),
        ("gpu:a100:8", 8),
        ("gpu:a100:4,gpu:v100:2", 6),
        ("gpu:4,nvme:1", 4),
        ("nvme:1", None),
        ("shard:4", None),
        ("none", None),
        ("gpus:4", None),
        ("gpu:", None),
        ("gpu:a100:many", None),
        ("gpu:a:b:8", None),
        ("gpu:8,gpu:a:b:8", None),
        ("", None),
    ],
)
def test_gpus_are_counted_where_the_text_tells_them(gres: str, count: int | None) -> None:
    assert gpus(gres) == count


def test_as_many_as_the_component_asks_for_is_no_contradiction() -> None:
    assert contradiction("gpu:a100:8", 8) is None
    assert contradiction("gpu:0", -1) is None
    assert contradiction(None, 8) is None
    assert contradiction("nvme:1", 8) is None


def test_another_number_is_named_with_what_to_do() -> None:
    text = contradiction("gpu:a100:8", 0)
    assert text is not None
    assert text.startswith("gres=gpu:a100:8 asks for 8 GPUs a node, the component or its resource ")
    assert "for 0 (gpu)" in text
    assert "--gpu 8" in text
