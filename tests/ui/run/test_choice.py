"""Which of a run's jobs a page opens."""

from itertools import permutations
from typing import Any

import pytest

from airflow_ett.ui.run.choice import address, choose, label, map_index_of


def _row(task_id: str, map_index: int = -1, generation: int = 1) -> dict[str, Any]:
    job = f"{task_id}/{map_index}/{generation}"
    return {"job": job, "task_id": task_id, "map_index": map_index, "generation": generation}


def _ids(rows: Any) -> list[str]:
    return [row["job"] for row in rows]


@pytest.mark.parametrize(
    ("text", "index"),
    [(None, None), ("", None), ("3", 3), ("-1", -1), ("{MAP_INDEX}", -1), ("1.5", -1), ("x", -1)],
)
def test_the_map_index_of_an_address(text: str | None, index: int | None) -> None:
    assert map_index_of(text) == index


def test_a_run_without_jobs_has_nothing_to_open() -> None:
    found = choose([], map_index=None, job=None)
    assert (found.jobs, found.job, found.others) == ((), None, ())


def test_the_only_job_opens_straight_away_in_its_newest_generation() -> None:
    rows = [_row("train", generation=n) for n in (1, 2, 3)]
    for order in permutations(rows):
        found = choose(order, map_index=None, job=None)
        assert found.job == "train/-1/3"
        assert _ids(found.others) == ["train/-1/2", "train/-1/1"]


def test_of_several_the_reader_chooses() -> None:
    rows = [_row("tune", 1), _row("tune", 0, 2), _row("tune", 0), _row("eval")]
    found = choose(rows, map_index=None, job=None)
    assert found.job is None
    assert _ids(found.jobs) == ["eval/-1/1", "tune/0/2", "tune/1/1"]


def test_a_map_index_opens_one() -> None:
    rows = [_row("tune", 1), _row("tune", 0, 2), _row("tune", 0)]
    assert choose(rows, map_index=1, job=None).job == "tune/1/1"
    assert choose(rows, map_index=-1, job=None).jobs == ()


def test_a_job_in_the_address_opens_whatever_its_generation() -> None:
    rows = [_row("tune", 1), _row("tune", 0, 2), _row("tune", 0)]
    found = choose(rows, map_index=None, job="tune/0/1")
    assert (found.job, _ids(found.others)) == ("tune/0/1", ["tune/0/2"])
    # A link from elsewhere still opens what there is.
    assert choose(rows, map_index=None, job="gone").job is None
    assert choose(rows, map_index=1, job="gone").job == "tune/1/1"


def test_labels_and_addresses() -> None:
    assert label(_row("train")) == "train"
    assert label(_row("train", 3, 2)) == "train[3] g2"
    assert label(_row("train", 3, 2), generation=False) == "train[3]"
    parts = {"run_id": "a/b&c", "task_id": "", "map_index": -1, "show": ["x", "y"]}
    assert address(**parts) == "?run_id=a%2Fb%26c&map_index=-1&show=x&show=y"
