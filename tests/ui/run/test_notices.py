"""What a reader must know first."""

from typing import Any

from airflow_ett.events import JobKey
from airflow_ett.ui.run.attempts import attempts
from airflow_ett.ui.run.view import run_view
from tests.ui.gallery.story import Story
from tests.ui.run.showing import SECOND, UTC, chips, leads, stats, view_of, words


def test_a_job_that_stands_still(lively: Any) -> None:
    (notice,) = view_of(lively).notices
    since = UTC.instant(lively.result["progress_ns"])
    assert notice.kind == "warn"
    assert notice.lead == f"The cursor has not moved since {since}."
    assert notice.phase == "data_wait"
    assert "gpu-a[031,032,034,041]" in notice.text
    assert notice.text.endswith(" The job still gives signs of life.")
    (silent,) = view_of(lively, later_ns=7200 * SECOND).notices
    heard = UTC.instant(lively.result["end_ns"])
    assert silent.lead == notice.lead
    assert silent.text.endswith(f" Nothing was heard of the job since {heard}.")


def test_a_notice_is_not_read_out_again_while_time_passes(lively: Any) -> None:
    assert view_of(lively, later_ns=SECOND).notices == view_of(lively, later_ns=60 * SECOND).notices


def test_a_job_that_nobody_hears_of(lively: Any) -> None:
    view = view_of(lively, current_phase="queue", later_ns=600 * SECOND)
    assert words(chips(view)[-1]) == "Silent for 10 m 00 s"
    assert leads(view.notices)[0].startswith("Nothing was heard of this job since ")


def test_a_job_that_failed_tells_who_and_why(broken: Any) -> None:
    (notice,) = view_of(broken).notices
    assert words(notice.lead) == "Application on rank 3, attempt 2."
    assert notice.text == "rank 3 raised ValueError"
    assert notice.evidence is not None
    assert notice.evidence.quotes == (
        ("Last lines of the log", "step 7\nValueError: <b>too many</b>"),
    )


def test_a_job_that_failed_without_a_word(broken: Any) -> None:
    attempts_ = [one | {"cause": None, "evidence": {}} for one in broken.result["attempts"]]
    (notice,) = view_of(broken, attempts=attempts_, cause=None).notices
    assert (words(notice.lead), notice.text) == ("Unknown.", "Nobody told why.")


def test_doubts_are_told_worst_first(broken: Any) -> None:
    skew = "a clock of attempt 1.0.0 is 12.0 s or more ahead of the launcher's"
    view = run_view(
        broken.result | {"quality": "partial", "quality_reasons": ["events are missing: 3", skew]},
        broken.phases,
        UTC,
        now_ns=broken.result["end_ns"],
        safe=lambda place: place,
        pruned=True,
    )
    assert leads(view.notices) == [
        "Application on rank 3, attempt 2.",
        "Part of this job is not measured.",
        "Clocks disagree.",
        "The raw events of this job were pruned.",
    ]
    assert [notice.items for notice in view.notices[1:3]] == [("events are missing: 3",), (skew,)]


def test_the_metrics_own_words_on_a_clock_that_is_off(told: Any) -> None:
    story = Story(JobKey("default", "ranker", "skewed", "train"), 1_796_000_000 * SECOND)
    story.submit()
    story.pass_(-12)
    story.boot("node", 5)
    story.pass_(20)
    story.train(60)
    story.finish()
    found = told(story)
    assert "Clocks disagree." in leads(view_of(found).notices)
    assert attempts(found.result, show_all=False).shown[0].skew == "clock 12.0\u00a0s behind"


def test_many_reasons_are_cut(wide: Any) -> None:
    reasons = [f"reason {number}" for number in range(20)]
    (notice,) = view_of(wide, quality="partial", quality_reasons=reasons).notices
    assert len(notice.items) == 9
    assert notice.items[-1] == "and 12 more: see the job as JSON"


def test_a_job_without_trainer_events(quiet: Any) -> None:
    view = view_of(quiet)
    assert leads(view.notices) == ["No ETT% for this run."]
    values = {label: told[0] for label, told in stats(view).items()}
    assert values == {
        "ETT%, from submission": "–",
        "Unsaved": "–",
        "Time to start": "–",
        "Time to recover": "–",
        "Lost accelerator-hours": "–",
    }


def test_a_job_in_the_queue_tells_its_schedulers_reason_and_misses_no_session(quiet: Any) -> None:
    (row, *_) = quiet.result["attempts"]
    waits = {"Resources": 90 * SECOND, "JobHeldAdmin": 3 * SECOND}
    live = {"current_phase": "queue", "frozen": False, "attempts": [row | {"waits": waits}]}
    (notice,) = view_of(quiet, **live).notices
    assert notice.lead == "No ETT% yet."
    text = words(notice.text)
    assert text == "It waits in its scheduler's queue, which says: Resources, JobHeldAdmin."
    (line,) = attempts(quiet.result | live, show_all=False).shown
    assert words(line.waits) == "Resources 1 m 30 s, JobHeldAdmin 3.0 s"
