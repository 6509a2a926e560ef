"""The clicks of the DLRM example are a pure function of the cursor, for any number of ranks."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from airflow_ett.examples.dlrm.data import Batch, Clicks, Order, Part, make_index  # noqa: E402
from airflow_ett.examples.dlrm.model import Sizes, build, example_batch  # noqa: E402

SIZES = Sizes(tables=5, rows=70, dimension=4, layers=1)
INDEX = make_index(1, 0.0)


def clicks(part: Part, *, cursor: int = 0, varies: bool = False, total: int = 2000) -> Clicks:
    order = Order(total, 64, varies)
    return Clicks(SIZES, part, order, INDEX, cursor=cursor, seed=1, wait_s=0.0)


ALL = clicks(Part(0, 1, range(5)))


def same(one: Batch, other: Batch) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@given(
    total=st.integers(0, 3000),
    quarter=st.integers(1, 40),
    varies=st.booleans(),
    steps=st.integers(0, 20),
)
def test_any_of_its_cursors_can_be_resumed_from(
    total: int, quarter: int, varies: bool, steps: int
) -> None:
    order = Order(total, 4 * quarter, varies)
    whole = list(order.since(0))
    begun, rest = whole[:steps], whole[steps:]
    stands = sum(size for _, size in begun)
    assert list(order.since(stands)) == rest
    for (cursor, size), (following, _) in itertools.pairwise(whole):
        assert cursor + size == following
    assert total - 4 * quarter < sum(size for _, size in whole) <= total


def test_sizes_vary_only_where_they_shall() -> None:
    assert {size for _, size in Order(2000, 64).since(0)} == {64}
    assert {size for _, size in Order(2000, 64, varies=True).since(0)} == {16, 32, 48, 64}


@pytest.mark.parametrize("cursor", [0, 64, 60_000_000])
def test_ranks_read_parts_of_the_same_batch(cursor: int) -> None:
    """Each all samples of its own tables, and all else of its own samples."""
    whole = ALL.batch(cursor, 64)
    tables = ([0, 3], [1, 2, 4])
    parts = [clicks(Part(rank, 2, own)).batch(cursor, 64) for rank, own in enumerate(tables)]
    for own, part in zip(tables, parts, strict=True):
        assert part.samples == 64
        assert torch.equal(part.ids, whole.ids[:, own])
    assert torch.equal(torch.cat([part.numbers for part in parts]), whole.numbers)
    assert torch.equal(torch.cat([part.label for part in parts]), whole.label)


def test_a_batch_does_not_depend_on_how_samples_are_cut_into_batches() -> None:
    whole, parts = ALL.batch(32, 64), [ALL.batch(32, 16), ALL.batch(48, 48)]
    for field in Batch._fields:
        joined = torch.cat([getattr(part, field) for part in parts])
        assert torch.equal(joined, getattr(whole, field))


def test_a_resumed_loader_goes_on_exactly_there() -> None:
    for varies in (False, True):
        part = Part(0, 1, range(5))
        straight = list(clicks(part, varies=varies))
        stands = sum(batch.samples for batch in straight[:7])
        resumed = list(clicks(part, varies=varies, cursor=stands))
        assert all(map(same, straight[7:], resumed))
        assert len(straight) == 7 + len(resumed)


def test_features_are_in_range_and_labels_of_both_kinds() -> None:
    batch = ALL.batch(0, 1024)
    assert 0 <= float(batch.numbers.min()) < float(batch.numbers.max()) < 1
    assert (int(batch.ids.min()), int(batch.ids.max())) == (0, SIZES.rows - 1)
    assert 0.3 < float(batch.label.mean()) < 0.7


def test_seeds_differ() -> None:
    assert make_index(1, 0.0) != make_index(2, 0.0)
    other = Clicks(SIZES, Part(0, 1, range(5)), Order(64, 64), INDEX, cursor=0, seed=2, wait_s=0.0)
    assert not torch.equal(other.batch(0, 64).ids, ALL.batch(0, 64).ids)


def test_the_served_model_has_a_score_for_each_example() -> None:
    scores = build()(*example_batch())
    assert scores.shape == (16,)
    assert bool(scores.isfinite().all())
