"""The table of a run's jobs."""

from airflow_ett.ui.run.view import jobs_view


def test_several_jobs_are_a_table() -> None:
    row = {
        "job": "a",
        "task_id": "tune",
        "map_index": 1,
        "generation": 2,
        "state": "running",
        "frozen": False,
        "wall_ns": 10,
        "held_ns": 8,
        "effective_ns": 5,
        "ett_pct": 50.0,
        "components_ns": {"effective": 5},
        "attempts": 2,
        "tts_ns": 3,
        "nof": 1,
        "ttr_ns": 2,
        "recoveries": 1,
        "accelerators": 4,
        "quality": "complete",
    }
    blind = row | {"ett_pct": None, "recoveries": 0, "map_index": 2}
    found = jobs_view([row, blind, *[row] * 20], "r 1", show_all=False)
    assert (len(found.shown), found.total, found.accelerated) == (14, 22, True)
    first, second = found.shown[:2]
    assert (first.label, first.query) == ("tune[1] g2", "?run_id=r+1&job=a")
    assert (first.lost, first.tts_ns, first.recovery_ns) == (12, 3, 2)
    assert (second.lost, second.tts_ns, second.recovery_ns) == (None, None, None)
    assert next(iter(first.components_ns)) == "effective"
    assert len(jobs_view([row] * 20, "r", show_all=True).shown) == 20
    assert jobs_view([row | {"accelerators": 0}], "r", show_all=True).shown[0].lost == 3
