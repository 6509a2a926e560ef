"""Finding or beginning the job of a task instance."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_ett.errors import ConfigurationError, JobLogError
from airflow_ett.events import CursorFile, JobKey, JobState
from airflow_ett.launch.opening import OpenJob, open_job
from airflow_ett.launch.root import Root

KEY = JobKey("default", "dag", "run", "train")


def opened(run_root: Path, key: JobKey, root: str = "", tries: tuple[int, int] = (2, 5)) -> OpenJob:
    """Open a job as a try whose max_tries was raised by a clear."""
    return open_job(
        Root(str(run_root)), key, checkpoint_root=root, try_number=tries[0], max_tries=tries[1]
    )


def end(job: Any, state: JobState, **opened: Any) -> None:
    """Write the log of a job that ended in this state."""
    job.log.claim(try_number=1, max_tries=0, mode="task")
    job.log.append("job_opened", {"key": {}, "inherit": opened.get("inherit")})
    job.log.append("job_ended", {"state": state, "cause": None})


def test_an_unusable_run_root_is_named(tmp_path: Path) -> None:
    (tmp_path / "root").write_text("a file stands here")
    with pytest.raises(ConfigurationError) as caught:
        opened(tmp_path / "root", KEY)
    assert caught.value.parameter == "[ett] run_root"


def test_opening_twice_finds_the_same_job(tmp_path: Path) -> None:
    first, second = (opened(tmp_path, KEY) for _ in range(2))
    assert first.log.place == second.log.place
    assert first.log.key.generation == 1


def test_checkpoints_lie_in_the_run_directory_or_below_a_root(tmp_path: Path) -> None:
    plain = opened(tmp_path, KEY)
    assert plain.checkpoints == f"{plain.log.place}/checkpoints"
    rooted = opened(tmp_path, KEY, root="/fast/")
    assert rooted.checkpoints == f"/fast/{KEY.path}"


@pytest.mark.parametrize("state", [JobState.FAILED, JobState.CANCELLED])
def test_the_next_generation_inherits_what_a_failed_one_reached(
    tmp_path: Path, state: JobState
) -> None:
    first = opened(tmp_path, KEY)
    end(first, state)
    CursorFile(Path(first.log.place) / "cursor").write(1, 0, 0, 0, 9, 0, 40, 77, *[0] * 7, 1)
    second = opened(tmp_path, KEY)
    assert second.log.key == replace(KEY, generation=2)
    assert second.inherit == {"checkpoint": None, "hwm": 77}


def test_what_was_inherited_and_not_bettered_is_handed_on(tmp_path: Path) -> None:
    end(opened(tmp_path, KEY), JobState.FAILED)
    end(
        opened(tmp_path, KEY),
        JobState.FAILED,
        inherit={"checkpoint": "/c/9", "hwm": 9},
    )
    third = opened(tmp_path, KEY)
    assert third.log.key.generation == 3
    assert third.inherit == {"checkpoint": "/c/9", "hwm": 9}


def test_a_success_leaves_nothing(tmp_path: Path) -> None:
    end(opened(tmp_path, KEY), JobState.SUCCEEDED)
    second = opened(tmp_path, KEY)
    assert (second.log.key.generation, second.inherit) == (2, None)


def test_r04_mapped_instances_have_jobs_of_their_own(tmp_path: Path) -> None:
    jobs = [opened(tmp_path, replace(KEY, map_index=index)) for index in (0, 1)]
    assert jobs[0].log.place != jobs[1].log.place


def test_a_plain_retry_after_a_success_that_airflow_never_heard_of_finds_it(tmp_path: Path) -> None:
    end(opened(tmp_path, KEY), JobState.SUCCEEDED)
    assert opened(tmp_path, KEY, tries=(2, 0)).log.key.generation == 1
    assert opened(tmp_path, KEY, tries=(2, 1)).log.key.generation == 2


def test_a_success_of_another_dag_run_of_the_same_id_is_not_reported(tmp_path: Path) -> None:
    """The run was deleted and made again, and its first try died before it claimed the job."""
    end(opened(tmp_path, KEY, tries=(1, 0)), JobState.SUCCEEDED)
    tries: dict[str, Any] = {"checkpoint_root": "", "try_number": 2, "max_tries": 0}
    assert open_job(Root(str(tmp_path)), KEY, **tries).log.key.generation == 1
    fresh = open_job(Root(str(tmp_path)), KEY, **tries, begun=False)
    assert fresh.log.key.generation == 2
    assert fresh.inherit is None


def test_a_generation_whose_launcher_ended_before_its_first_word_inherits_all_the_same(
    tmp_path: Path,
) -> None:
    first = opened(tmp_path, KEY)
    end(first, JobState.FAILED)
    CursorFile(Path(first.log.place) / "cursor").write(1, 0, 0, 0, 9, 0, 40, 77, *[0] * 7, 1)
    second = opened(tmp_path, KEY)
    second.log.claim(try_number=2, max_tries=5, mode="task")
    again = opened(tmp_path, KEY)
    assert again.log.key.generation == 2
    assert again.inherit == second.inherit == {"checkpoint": None, "hwm": 77}


def test_generations_follow_each_other_wherever_the_log_lies(root: Root) -> None:
    def look(**options: Any) -> OpenJob:
        return open_job(root, KEY, checkpoint_root="/c", try_number=2, max_tries=5, **options)

    first = look()
    end(first, JobState.FAILED, inherit={"checkpoint": "/c/5", "hwm": 5})
    second = look()
    assert second.log.key.generation == 2
    assert second.inherit == {"checkpoint": "/c/5", "hwm": 5}
    assert look().log.key.generation == 2
    end(second, JobState.SUCCEEDED)
    third = look()
    assert (third.log.key.generation, third.inherit) == (3, None)
    places = {job.log.place for job in (first, second, third)}
    assert len(places) == 3
    assert {job.checkpoints for job in (first, second, third)} == {
        f"/c/{replace(KEY, generation=number).path}" for number in (1, 2, 3)
    }


def test_checkpoints_are_nowhere_where_nobody_named_a_root_for_them() -> None:
    job = open_job(Root("memory://runs"), KEY, checkpoint_root="", try_number=1, max_tries=1)
    assert job.checkpoints == ""
    assert job.newest() is None


def test_checkpoints_that_cannot_be_looked_at_are_not_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while an object store does not answer: the launcher asks again, and submits nothing."""
    job = opened(tmp_path, KEY)
    assert job.newest() is None

    def away(root: str) -> None:
        raise OSError(5, "SlowDown", root)

    monkeypatch.setattr("airflow_ett.launch.opening.newest_committed", away)
    with pytest.raises(JobLogError, match="SlowDown"):
        job.newest()
