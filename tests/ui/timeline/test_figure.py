"""The figure: each attempt to scale in its row, marks and cursor at their times, names as text."""

import json
import re
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from airflow_ett.events import AttemptId
from airflow_ett.metric import COMPONENTS, JobMetric
from airflow_ett.ui.charts import phase_token
from airflow_ett.ui.clock import Clock
from airflow_ett.ui.timeline.figure import height, right_px, timeline_figure
from airflow_ett.ui.timeline.phases import components_of, label_token

SECOND = 10**9
BEGIN = 1_796_000_000 * SECOND
Tell = Callable[..., Any]
Figure = dict[str, Any]
HOSTILE = '<img src=x>"%{x}&$bg\u202e'


def draw(metric: JobMetric, clock: Clock | None = None, now_ns: int = 0) -> Figure:
    booked = [(b.phase, b.component, ns) for a in metric.attempts for b, ns in a.booked.items()]
    return timeline_figure(
        metric.as_dict(),
        metric.lanes,
        metric.progress,
        clock or Clock(),
        now_ns=now_ns,
        of=components_of(booked),
        components=COMPONENTS,
    )


def trace(figure: Figure, name: str) -> Figure:
    (found,) = (one for one in figure["data"] if one["name"] == name)
    return found


def at(text: str) -> float:
    """Seconds of the job of a time on an axis in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() - BEGIN / SECOND


def main(figure: Figure) -> list[Figure]:
    return [one for one in figure["data"] if one["type"] == "bar" and one["width"] == 0.44]


def test_the_bars_of_a_row_sum_to_its_attempts_wall_clock(story: Tell) -> None:
    metric = story().measure()
    sums: Counter[int] = Counter()
    for one in main(draw(metric)):
        for y, ms in zip(one["y"], one["x"], strict=True):
            sums[y] += ms
    first, second = ((row.end_ns - row.begin_ns) // 10**6 for row in metric.attempts)
    # The 30 s from the detection to the next submission are drawn where they lead to.
    assert metric.attempts[0].phases_ns["retry_wait"] == 30 * SECOND
    assert sums == {1: first - 30_000, 0: second + 30_000}


def test_rows_are_a_staircase_without_gaps(story: Tell) -> None:
    bars = sorted(
        (at(base), at(base) + ms / 1000, y)
        for one in main(draw(story().measure()))
        for base, ms, y in zip(one["base"], one["x"], one["y"], strict=True)
    )
    assert bars[0][0] == 0
    assert bars[-1][1] == 890
    assert all(one[1] == two[0] and one[2] >= two[2] for one, two in pairwise(bars))
    assert next(begin for begin, _, y in bars if y == 0) == 420


def test_a_phase_has_its_colour_its_owner_and_its_times(story: Tell) -> None:
    figure = draw(story().measure())
    compiled = trace(figure, "compile")
    assert (compiled["base"], compiled["x"]) == (["2026-11-30 00:54:20.000"], [40_000])
    assert compiled["marker"]["color"] == "$ph-compile"
    assert compiled["insidetextfont"]["color"] == "$on-compile"
    assert compiled["meta"] == ["compile", "PT2 compile, compiler"]
    told = "40.0\u00a0s<br>00:54:20 – 00:55:00 UTC, +1\u00a0m\u00a000\u00a0s"
    assert compiled["customdata"] == [[told]]
    moved = "<br>cursor 2.0\u00a0k → 3.0\u00a0k"
    assert trace(figure, "replay")["customdata"][0][1] == moved
    assert "text" not in trace(figure, "replay")


@pytest.mark.parametrize(
    ("phase", "color", "line"),
    [
        ("wasted.tokenise", "$ett-wasted", "Wasted, checkpointing"),
        # Before the loop, what nothing names is part of the start.
        ("mystery", "$ett-init", "Trainer init, training-framework"),
    ],
)
def test_a_phase_of_the_trainers_own_takes_its_components_colour(
    story: Tell, phase: str, color: str, line: str
) -> None:
    found = trace(draw(story().measure()), phase)
    assert (found["marker"]["color"], found["meta"][1]) == (color, line)


def test_checkpoints_stand_at_their_commit(story: Tell) -> None:
    figure = draw(story().measure())
    committed = trace(figure, "checkpoint")
    assert ([at(x) for x in committed["x"]], committed["y"]) == ([315], [1.33])
    assert committed["customdata"] == [
        "at cursor 2.0\u00a0k<br>2026-11-30 00:58:35 UTC<br>blocking 1.0\u00a0s, upload 5.0\u00a0s"
    ]
    lost = trace(figure, "checkpoint, not committed")
    assert [at(x) for x in lost["x"]] == [395]
    assert lost["marker"]["size"] < committed["marker"]["size"]


def test_what_ran_beside_is_below_its_row(story: Tell) -> None:
    beside = trace(draw(story().measure()), "background")
    assert (beside["y"], beside["x"]) == ([0.64], [5_000])
    assert "not summed" in beside["hovertemplate"]


def test_what_ran_beside_at_once_lies_below_each_other(story: Tell) -> None:
    told = story()
    for number in range(4):
        told.phase(f"trainer_init.{number}", 460, 466 + number, (2, 0, 0), lane=f"init-{number}")
    beside = trace(draw(told.measure()), "background")
    second = [y for y in beside["y"] if y < 0]
    assert len(set(second)) == 4
    # Below the row's bar, above what the next row would have on top.
    assert max(second) + beside["width"] / 2 <= -0.22
    assert min(second) - beside["width"] / 2 >= -0.6


def test_a_failure_has_its_cause_and_its_evidence(story: Tell) -> None:
    failure = trace(draw(story(evidence="it " * 60).measure()), "failure")
    assert [at(x) for x in failure["x"]] == [420]
    assert failure["text"] == ["  Preempted"]
    cause, told = failure["customdata"][0]
    assert cause == "Preempted"
    assert told.startswith("2026-11-30 01:00:20 UTC<br>it it")
    assert max(map(len, told.split("<br>"))) <= 80


def test_a_cause_in_words_has_room_beside_its_mark(story: Tell) -> None:
    result = story().measure().as_dict()
    first, last = result["attempts"]
    assert first["cause"]
    assert not last["cause"]
    assert right_px(result) == 16
    last["cause"] = "out_of_memory"
    assert 88 <= right_px(result) <= 108
    last["cause"] = "x" * 200
    assert right_px(result) == 150


def test_a_job_without_a_step_says_so(story: Tell) -> None:
    told = story()
    told.events = [event for event in told.events if event.attempt is None][:1]
    told.submit(0, 1)
    layout = draw(told.measure(now_ns=BEGIN + 10**12))["layout"]
    assert not layout["yaxis"]["showticklabels"]
    assert "No training step was reported yet" in [one["text"] for one in layout["annotations"]]
    assert draw(story().measure())["layout"]["yaxis"]["showticklabels"]


def test_a_users_wish_is_no_failure(story: Tell) -> None:
    figure = draw(story(cause="user_restart").measure())
    assert trace(figure, "ended by a user")["text"] == ["  Restarted by a user"]
    assert not [one for one in figure["data"] if one["name"] == "failure"]


def test_the_cursor_its_replay_and_the_mark_between(story: Tell) -> None:
    figure = draw(story().measure())
    assert figure["layout"]["yaxis"]["title"]["text"] == "Cursor, k samples"
    cursor = trace(figure, "cursor")
    assert cursor["y"] == [0, 1, 2, 2, 3, None, 3, 6]
    assert [at(x) for x in cursor["x"] if x][-2:] == [600, 890]
    lines = [one for one in figure["data"] if one.get("mode") == "lines"]
    assert [one["line"]["width"] for one in lines] == [2, 4, 1]
    assert lines[1]["y"] == [2, 3]
    mark = lines[2]
    assert ([at(x) for x in mark["x"] if x], mark["y"]) == ([400, 600], [3, 3, None])


def test_a_live_job_has_a_line_at_its_end_and_its_risk_shaded(story: Tell) -> None:
    metric = story(ends=False).measure()
    layout = draw(metric, now_ns=metric.end_ns)["layout"]
    shade, line = layout["shapes"]
    assert (at(shade["x0"]), at(shade["x1"]), shade["fillcolor"]) == (310, 890, "$warn-bg")
    assert (at(line["x0"]), line["yref"]) == (890, "paper")
    assert [one["text"] for one in layout["annotations"]] == ["at risk", "now"]
    late = draw(metric, now_ns=metric.end_ns + 3600 * SECOND)["layout"]
    assert late["annotations"][1]["text"] == "last sign of life"


def test_a_job_that_is_over_and_safe_has_neither(story: Tell) -> None:
    layout = draw(story().measure())["layout"]
    assert (layout["shapes"], layout["annotations"]) == ([], [])
    assert layout["meta"] == {"zoom": True}
    assert layout["yaxis2"]["ticktext"] == ["2 · relaunch", "1 · first"]


def test_times_are_those_of_the_clock(story: Tell) -> None:
    berlin = Clock(ZoneInfo("Europe/Berlin"), "Europe/Berlin")
    figure = draw(story().measure(), berlin)
    assert trace(figure, "compile")["base"] == ["2026-11-30 01:54:20.000"]
    assert "01:54:20 – 01:55:00 Europe/Berlin" in trace(figure, "compile")["customdata"][0][0]
    assert figure["layout"]["xaxis"]["range"][0].startswith("2026-11-30 01:53")


def test_names_are_text(story: Tell) -> None:
    told = story(evidence=HOSTILE, cause=HOSTILE, layer=HOSTILE)
    told.phase(HOSTILE, 490, 495, (2, 0, 0)).phase("x", 700, 710, (2, 0, 0), lane=HOSTILE)
    figure = draw(told.measure())
    assert "<img" not in json.dumps(figure)
    for one in figure["data"]:
        # Plotly fills in what stands in a template, not what that is filled with.
        assert "img" not in one.get("hovertemplate", "")
    colours = [one["marker"]["color"] for one in main(figure)]
    assert all(colour.startswith(("$ph-", "$ett-")) for colour in colours)


def test_every_colour_is_one_of_the_style_sheet(story: Tell, repo: Path) -> None:
    told = story(cause="user_restart", ends=False).phase("checkpoint_restore", 490, 495, (2, 0, 0))
    figures = [draw(told.measure()), draw(story().measure())]
    static = repo / "airflow_ett" / "ui" / "static"
    known = set(re.findall(r"--([\w-]+):", "".join(p.read_text() for p in static.glob("*.css"))))
    used = set(re.findall(r'"\$([\w-]+)"', json.dumps(figures)))
    assert {"ph-train", "ett-wasted", "ett-init", "on-compile", "bad", "warn-bg"} <= used
    assert used <= known


@pytest.mark.parametrize(
    "phase", sorted(phase for part in COMPONENTS.values() for phase in part.phases)
)
def test_every_known_phase_has_a_colour_and_a_label(phase: str, repo: Path) -> None:
    palette = (repo / "airflow_ett" / "ui" / "static" / "palette.css").read_text()
    component = COMPONENTS.of(phase)
    for token in (phase_token(phase, component), label_token(phase, component)):
        assert token.endswith(phase)
        assert palette.count(f"--{token}:") == 2


def test_few_traces_however_many_spans(story: Tell) -> None:
    told = story(ends=False)
    for n in range(5_000):
        begin = 890 + 4 * n
        told.step(begin, begin + 3, (6000 + 10 * n, 6010 + 10 * n), (2, 0, 0))
        told.phase("evaluation", begin + 3, begin + 4, (2, 0, 0))
    metric = told.measure()
    figure = draw(metric)
    assert len(figure["data"]) < 40
    bars = main(figure)
    assert sum(len(one["x"]) for one in bars) <= 2_000
    assert sum(map(sum, (one["x"] for one in bars))) == metric.wall_ns // 10**6
    assert any("spans)" in text for one in bars for text, *_ in one["customdata"])
    points = [len(one["x"]) for one in figure["data"] if one.get("mode") == "lines"]
    assert sum(points[:2]) <= 2_000 + 10


@pytest.mark.parametrize(
    ("attempts", "pixels"), [(1, 476), (4, 476), (5, 532), (12, 924), (30, 1932)]
)
def test_the_height_grows_with_the_attempts(attempts: int, pixels: int) -> None:
    assert height(attempts) == pixels


def test_a_row_of_an_attempt_is_where_its_number_says(story: Tell) -> None:
    metric = story().measure()
    assert [row.id for row in metric.attempts] == [AttemptId(1), AttemptId(2)]
    assert set(trace(draw(metric), "first_batch")["y"]) == {1}
