"""The table of phases: exact by component, and shares that add up."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_ett.events import AttemptId
from airflow_ett.metric import COMPONENTS
from airflow_ett.metric.format import MINUS
from airflow_ett.store.queries import PhaseRow
from airflow_ett.ui.run.phases import PhaseTable, phase_table

SECOND = 10**9
_PHASES = [phase for part in COMPONENTS.values() for phase in part.phases]


def _made_up(*attempts: dict[str, int], moved: dict[str, int] | None = None) -> dict[str, Any]:
    """A job of these attempts' phases; ``moved`` is what a component has beside them."""
    components = Counter(dict.fromkeys(COMPONENTS, 0))
    for phases in attempts:
        for phase, ns in phases.items():
            components[COMPONENTS.of(phase)] += ns
    for name, ns in (moved or {}).items():
        components[name] += ns
    rows = [
        AttemptId(number)._asdict() | {"phases_ns": phases, "slowest": {}}
        for number, phases in enumerate(attempts, 1)
    ]
    return {
        "attempts": rows,
        "components_ns": dict(components),
        "wall_ns": components.total(),
    }


def _tenths(share: str) -> int:
    return 0 if share == "–" else round(10 * float(share.rstrip("%")))


def _check(table: PhaseTable, result: dict[str, Any]) -> None:
    assert {group.component: group.job_ns for group in table.groups} == {
        name: ns
        for name, ns in result["components_ns"].items()
        if ns or name in ("effective", "unattributed")
    }
    assert sum(table.sums) == table.wall_ns == result["wall_ns"]
    for column, total in enumerate(table.sums):
        assert sum(group.cells[column] for group in table.groups) == total
    for group in table.groups:
        assert not group.lines or sum(line.job_ns for line in group.lines) == group.job_ns
        for line in group.lines:
            assert line.name is None or sum(cell.ns for cell in line.cells) == line.job_ns
    if table.wall_ns:
        assert sum(_tenths(group.share) for group in table.groups) == 1000


_TIMES = st.dictionaries(st.sampled_from(_PHASES), st.integers(0, 10**14))


@given(st.lists(_TIMES, max_size=9))
def test_every_sum_is_exact_and_shares_add_up(attempts: list[dict[str, int]]) -> None:
    result = _made_up(*attempts)
    table = phase_table(result, [])
    _check(table, result)
    assert len(table.columns) == (len(attempts) if len(attempts) <= 6 else 6)
    for group in table.groups:
        if group.lines:
            assert sum(_tenths(line.share) for line in group.lines) == _tenths(group.share)


@pytest.mark.parametrize("name", ["lively", "hostile", "wide", "broken", "quiet"])
def test_real_jobs_add_up(name: str, request: pytest.FixtureRequest) -> None:
    result, rows = request.getfixturevalue(name)
    _check(phase_table(result, rows), result)


def test_many_attempts_are_the_first_the_last_four_and_others() -> None:
    result = _made_up(*({"train": number * SECOND} for number in range(1, 10)))
    table = phase_table(result, [])
    assert table.columns == (
        *("Attempt 1", "4 others"),
        *("Attempt 6", "Attempt 7", "Attempt 8", "Attempt 9"),
    )
    assert [sum_ns // SECOND for sum_ns in table.sums] == [1, 2 + 3 + 4 + 5, 6, 7, 8, 9]


def test_components_and_phases_stand_in_their_order() -> None:
    phases = dict.fromkeys(reversed(_PHASES), SECOND) | {"wasted.b": SECOND, "wasted.a": SECOND}
    table = phase_table(_made_up(phases), [])
    assert [group.component for group in table.groups] == list(COMPONENTS)
    for group in table.groups:
        if group.component in ("effective", "unattributed"):
            assert group.lines == ()
        else:
            known = COMPONENTS[group.component].phases
            extra = ("wasted.a", "wasted.b") if group.component == "wasted" else ()
            assert tuple(line.name for line in group.lines) == known + extra
    wasted = next(group for group in table.groups if group.component == "wasted")
    assert {line.token for line in wasted.lines[-2:]} == {"ett-wasted"}
    assert wasted.lines[0].token == "ph-replay"


def test_the_store_tells_where_a_phase_of_the_trainers_own_belongs() -> None:
    result = _made_up({"mine": 5 * SECOND, "train": 5 * SECOND}, {"mine": 2 * SECOND})
    result["components_ns"].update(wasted=2 * SECOND, trainer_init=5 * SECOND)
    rows = [
        PhaseRow(AttemptId(1), "mine", "trainer_init", 5 * SECOND),
        PhaseRow(AttemptId(2), "mine", "wasted", 2 * SECOND),
    ]
    table = phase_table(result, rows)
    _check(table, result)
    lines = {g.component: g.lines for g in table.groups if g.lines}
    assert [line.name for line in lines["trainer_init"] + lines["wasted"]] == ["mine", "mine"]


def test_a_phase_in_two_components_of_one_attempt_is_told_as_moved() -> None:
    """The store names one component for it; the metric's sums by component stay exact."""
    moved = {"wasted": -3 * SECOND, "trainer_init": 3 * SECOND}
    result = _made_up({"mine": 8 * SECOND, "train": 2 * SECOND}, moved=moved)
    table = phase_table(result, [])
    _check(table, result)
    wasted = next(group for group in table.groups if group.component == "wasted")
    assert [(line.name, line.job_ns // SECOND) for line in wasted.lines] == [
        ("mine", 8),
        (None, -3),
    ]
    assert [line.share for line in wasted.lines] == ["80.0%", "–"]


def test_a_long_name_is_found_under_its_beginning() -> None:
    name = "n" * 300
    result = _made_up({name: SECOND})
    result["components_ns"].update(wasted=0, trainer_init=SECOND)
    rows = [PhaseRow(AttemptId(1), name[:250], "trainer_init", SECOND)]
    _check(phase_table(result, rows), result)


def test_the_slowest_rank_is_named_where_it_matters(wide: Any) -> None:
    cells = {
        line.name: line.cells[0].slowest
        for group in phase_table(*wide).groups
        for line in group.lines
    }
    # Rank 7 took 38 s where the table says 30; rank 2's 42 s are no tenth more than 40.
    assert cells["first_batch"] == "rank 7: 38.0\u00a0s"
    assert cells["train_module_creation"] == ""


def test_the_slowest_rank_is_named_with_its_host() -> None:
    result = _made_up({"first_batch": 10 * SECOND})
    slow = {"rank": 9, "ns": 14 * SECOND}
    for told, text in (({"host": "n2"}, "rank 9 on n2: 14.0\u00a0s"), ({}, "rank 9: 14.0\u00a0s")):
        result["attempts"][0]["slowest"] = {"first_batch": slow | told}
        lines = [line for group in phase_table(result, []).groups for line in group.lines]
        assert lines[0].cells[0].slowest == text


def test_without_any_time_nothing_has_a_share() -> None:
    table = phase_table(_made_up(), [])
    assert [(group.component, group.share) for group in table.groups] == [
        ("effective", "–"),
        ("unattributed", "–"),
    ]
    assert MINUS not in str(table)
