"""Evidence in words, whoever wrote it."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from airflow_ett.ui.run.evidence import evidence_of, place_of

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
_NAMES = st.sampled_from(["text", "signal", "lines", "error", "replica", "host", "traceback"])


def test_what_the_launcher_writes_reads_well() -> None:
    found = evidence_of(
        {
            "text": "rank 3 on gpu-1 was killed by signal 9 (SIGKILL).",
            "source": "agent",
            "exit_code": None,
            "signal": 9,
            "replica": 3,
            "host": "gpu-1",
            "seen": False,
            "error": {"type": "ValueError", "message": "too many", "traceback": "a\nb"},
            "lines": ["one", "two"],
            "log": "/logs/3.out",
        }
    )
    assert found.text == "rank 3 on gpu-1 was killed by signal 9 (SIGKILL)."
    assert found.facts == (
        ("Told by", "agent"),
        ("Signal", "9 (SIGKILL)"),
        ("Rank or replica", "3"),
        ("Host", "gpu-1"),
        ("Seen to end", "no"),
        ("Exception", "ValueError"),
        ("Message", "too many"),
        ("Log", "/logs/3.out"),
    )
    assert found.quotes == (("Traceback", "a\nb"), ("Last lines of the log", "one\ntwo"))


def test_without_a_sentence_facts_make_one() -> None:
    assert evidence_of({"exit_code": 1, "raw": "FAILED"}).text == (
        "Exit code: 1; Scheduler's state: FAILED"
    )


def test_long_texts_are_cut_and_kept_folded() -> None:
    found = evidence_of({"text": "w" * 700, "note": "n" * 200})
    assert found.text == "w" * 280 + "…"
    assert found.quotes == (("In full", "w" * 700), ("Note", "n" * 200))
    assert len(evidence_of({"note": "n" * 100_000}).quotes[0][1]) == 16_000


def test_where_it_failed() -> None:
    assert place_of({"replica": 0, "host": "gpu-1"}) == "rank 0 on gpu-1"
    assert place_of({"host": "gpu-1"}) == "gpu-1"
    assert place_of({"replica": 4}) == "rank 4"
    assert place_of({}) == place_of(None) == place_of("rank 4") == ""


@given(_JSON | st.dictionaries(_NAMES | st.text(), _JSON))
def test_anything_is_text(found: Any) -> None:
    shown = evidence_of(json.loads(json.dumps(found)))
    parts = [*shown.facts, *shown.quotes, ("", shown.text), ("", place_of(found))]
    assert all(isinstance(text, str) for pair in parts for text in pair)
