"""What a kill means by Airflow's own state."""

import pytest
from airflow.utils.state import TaskInstanceState

from airflow_ett.hooks.kill import Kill, meaning

EXPECTED = {
    None: Kill.CLEARED,
    "none": Kill.CLEARED,
    "restarting": Kill.CLEARED,
    "scheduled": Kill.CLEARED,
    "queued": Kill.CLEARED,
    "failed": Kill.ENDED,
    "success": Kill.ENDED,
    "skipped": Kill.ENDED,
    "upstream_failed": Kill.ENDED,
    "removed": Kill.ENDED,
    "running": Kill.MOVED,
    "deferred": Kill.MOVED,
    "up_for_retry": Kill.MOVED,
    "up_for_reschedule": Kill.MOVED,
    "awaiting_input": Kill.MOVED,
}


@pytest.mark.parametrize(("state", "kill"), EXPECTED.items())
def test_every_state_has_a_meaning(state: str | None, kill: Kill) -> None:
    assert meaning(state) is kill


@pytest.mark.parametrize(("state", "kill"), EXPECTED.items())
def test_a_task_that_another_scheduler_has_reset_was_not_cleared(
    state: str | None, kill: Kill
) -> None:
    reset = state in (None, "none", "scheduled", "queued")
    assert meaning(state, held=True) is (Kill.MOVED if reset else kill)


def test_no_state_of_airflow_is_forgotten() -> None:
    assert {state.value for state in TaskInstanceState} <= set(EXPECTED)
