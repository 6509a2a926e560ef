"""What was compiled anew, summed up by what had changed."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_ett.metric.plans.recompiles import recompiles
from tests.metric.plans.made_jobs import SECOND, job
from tests.metric.plans.test_guards import RECORDED

SIZE = "0/0: tensor 'x' size mismatch at index 0. expected {}, actual {}"
EVALUATES = "0/0: GLOBAL_STATE changed: grad_mode "


def compiled(id_: str | None, begin: float, seconds: float, reason: str | None = None) -> Any:
    return {"id": id_, "begin_ns": round(begin * SECOND), "s": seconds, "reason": reason}


def test_one_change_is_one_group() -> None:
    attempt = [
        compiled("0/0", 0, 8),
        compiled("0/0 backward", 8, 4),
        compiled("0/1", 20, 5, SIZE.format(512, 384)),
        compiled("0/1 backward", 25, 3, SIZE.format(512, 384)),
        compiled("0/2", 40, 2, EVALUATES),
        compiled("1/1", 50, 1, SIZE.format(512, 77)),
    ]
    found = recompiles([job({"compile": 23, "compiles": attempt}), job({"train": 1}, run="r2")])
    assert (found.jobs, found.graphs, found.compile_ns) == (2, 4, 23 * SECOND)
    assert (found.anew, found.anew_ns) == (3, 11 * SECOND)
    size, mode = found.groups
    assert (size.what, size.graphs, size.lost_ns) == ("size of dimension 0 of x", 2, 9 * SECOND)
    assert size.values == ("77", "384", "512")
    assert "pad_to(batch, 512)  # and leave the added rows out of the loss" in size.add
    assert size.example == SIZE.format(512, 384)
    assert (mode.kind, mode.graphs, mode.avoidable) == ("gradient_mode", 1, False)
    assert found.dynamic_sources == "L['x']"
    assert found.as_dict()["groups"][1]["lost_ns"] == 2 * SECOND


def test_each_attempt_compiles_its_own() -> None:
    attempt = {"compile": 5, "compiles": [compiled("0/1", 0, 5, SIZE.format(8, 4))]}
    [group] = recompiles([job(attempt, attempt)]).groups
    assert (group.graphs, group.lost_ns) == (2, 10 * SECOND)


def test_what_several_nodes_compile_at_once_is_lost_once() -> None:
    rows = [
        compiled("0/1", 0, 5, SIZE.format(8, 4)),
        compiled("0/1", 1, 5, SIZE.format(8, 3)),
        compiled("0/1", 9, 1, SIZE.format(8, 3)),  # anew after a reset
    ]
    [group] = recompiles([job({"compile": 7, "compiles": rows})]).groups
    assert (group.graphs, group.lost_ns) == (1, 7 * SECOND)
    assert group.values == ("3", "4", "8")


def test_other_lanes_are_not_waited_for() -> None:
    row = compiled("0/1", 0, 5, SIZE.format(8, 4)) | {"lane": "warm"}
    found = recompiles([job({"train": 9, "compiles": [row]})])
    [group] = found.groups
    assert (group.lost_ns, group.beside_ns, found.anew_ns) == (0, 5 * SECOND, 5 * SECOND)


def test_a_torch_that_tells_no_reasons() -> None:
    rows = [compiled("0/0", 0, 5), compiled("0/1", 9, 2), compiled(None, 12, 1)]
    found = recompiles([job({"compile": 8, "compiles": rows})])
    [group] = found.groups
    assert (group.kind, group.graphs, group.lost_ns) == ("untold", 1, 2 * SECOND)
    assert found.compile_ns == 8 * SECOND


def test_the_limit_is_told() -> None:
    rows = [compiled(f"3/{n}", n, 1, SIZE.format(9, n)) for n in range(1, 8)]
    assert recompiles([job({"compile": 7, "compiles": rows})]).at_limit == 1
    assert recompiles([job({"compile": 7, "compiles": rows[:-1]})]).at_limit == 0


def test_ids_that_anybody_may_write() -> None:
    """A number of so many digits is not even read: Python refuses to."""
    rows = [compiled(id_, 0, 1) for id_ in ("0/" + "9" * 5000, "9" * 5000 + "/1", "1/", "?")]
    found = recompiles([job({"compile": 4, "compiles": rows})])
    assert (found.graphs, found.anew, found.at_limit) == (4, 1, 0)


def test_all_sources_in_one_line() -> None:
    texts = [SIZE.format(8, 4), SIZE.format(8, 2).replace("'x'", "'b['y']'"), "0/0: epoch == 2"]
    rows = [compiled(f"0/{n}", n, 1, text) for n, text in enumerate(texts, 1)]
    found = recompiles([job({"compile": 3, "compiles": rows})])
    assert found.dynamic_sources == "L['x'],L['b']['y'],L['epoch']"


def test_nothing_of_nothing() -> None:
    assert recompiles([]).groups == recompiles([job({"train": 1})]).groups == ()


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.sampled_from([None, "0/0", "0/1", "0/1 backward", "1/7", "odd"]),
            "s": st.integers(0, 100),
            "pause": st.integers(0, 9),
            "lane": st.sampled_from(["main", "warm"]),
            "reason": st.none()
            | st.sampled_from([row["reason"] for row in RECORDED])
            | st.text(min_size=1, max_size=30),
        }
    ),
    max_size=8,
)


@settings(deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=3))
def test_nothing_is_lost(attempts: list[list[dict[str, Any]]]) -> None:
    for rows in attempts:
        begin = 0
        for row in rows:
            row["begin_ns"] = begin
            begin += (row["s"] + row["pause"]) * SECOND
    every = [row for rows in attempts for row in rows]
    found = recompiles([job(*({"train": 1, "compiles": rows} for rows in attempts))])
    parts = sum(group.lost_ns + group.beside_ns for group in found.groups)
    assert found.compile_ns == sum(row["s"] for row in every) * SECOND
    told = sum(row["s"] for row in every if row["reason"]) * SECOND
    untold = [group.lost_ns + group.beside_ns for group in found.groups if group.kind == "untold"]
    assert parts == found.anew_ns == told + sum(untold)
    assert sum(group.lost_ns for group in found.groups) <= sum(
        row["s"] * SECOND for row in every if row["lane"] == "main"
    )
    for row in every:
        if row["reason"]:
            assert any(_tells(group, row["reason"]) for group in found.groups)


def _tells(group: Any, reason: str) -> bool:
    line = " ".join(reason.split())
    return group.example == reason or group.what in line or group.kind != "other"
