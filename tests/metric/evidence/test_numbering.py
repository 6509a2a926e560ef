"""Which numbers were seen, against a plain set."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from airflow_ett.metric.evidence.numbering import Numbering

NUMBERS = st.lists(st.one_of(st.integers(0, 30), st.integers(2**63 - 3, 2**63 - 1)), unique=True)


@given(NUMBERS)
def test_it_knows_what_a_set_knows(numbers) -> None:
    numbering, seen = Numbering(), set[int]()
    for number in numbers:
        assert number not in numbering
        numbering.add(number)
        seen.add(number)
        assert all(one in numbering for one in seen)
        assert numbering.next == max(seen) + 1
        assert numbering.missing == max(seen) + 1 - len(seen)
    for after in range(-1, 33):
        unseen = numbering.next - after - 1 - sum(number > after for number in seen)
        assert numbering.missing_after(after) == max(0, unseen)


def test_a_gap_costs_one_stretch() -> None:
    numbering = Numbering()
    for number in [0, *range(2, 1000)]:
        numbering.add(number)
    assert len(numbering._begins) == 2
    numbering.add(1)
    assert (numbering._begins, numbering._ends) == ([0], [1000])


@given(st.data())
def test_numbers_that_are_times_begin_where_a_process_does(data) -> None:
    """Containers that were started again: what is missing is what lies within their stretches."""
    numbering, lost = Numbering(), set[int]()
    numbers: list[int] = []
    for process in range(3):
        first = 1_790_000_000_000 + process * 1000
        written = range(first, first + data.draw(st.integers(1, 20)))
        gone = data.draw(st.sets(st.sampled_from(written[1:-1] or written[:0] or [0])))
        lost |= gone & set(written[1:-1])
        numbers += [number for number in written if number not in lost]
        numbering.begin(first)
    for number in data.draw(st.permutations(numbers)):
        numbering.add(number)
    assert numbering.missing == len(lost)
    assert numbering.missing_after(1_790_000_001_000) == sum(n > 1_790_000_001_000 for n in lost)


def test_what_is_missing_before_a_plain_number_is_missing() -> None:
    numbering = Numbering()
    numbering.begin(2)
    numbering.add(2)
    assert numbering.missing == 2
