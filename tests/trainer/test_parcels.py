"""Batches handed over many at a time are the same batches, in the same order."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_ett.errors import ConfigurationError
from airflow_ett.trainer.journal import Journal
from airflow_ett.trainer.levers import Levers, Outcome

pytestmark = [pytest.mark.torch, pytest.mark.timeout(120)]
torch = pytest.importorskip("torch")

from torch.utils import data  # noqa: E402

from airflow_ett.trainer.parcels import Parcel, in_parcels, in_turn  # noqa: E402


class Telling(Levers):
    """Levers that keep what is told."""

    def __init__(self, **environ: str) -> None:
        super().__init__(Journal(None), environ)
        self.told: list[tuple[str, Outcome, str | None]] = []

    def tell(self, lever: str, outcome: Outcome, reason: str | None = None, **_: Any) -> None:
        self.told.append((lever, outcome, reason))


class Rows(data.Dataset):  # type: ignore[misc]  # torch is not typed here
    """Samples by number."""

    def __len__(self) -> int:
        return 27

    def __getitem__(self, at: int) -> dict[str, Any]:
        return {"row": torch.tensor([at, at + 1]), "name": f"row {at}"}


class Stream(data.IterableDataset):  # type: ignore[misc]
    """Each worker has so many samples; none of them is told of before."""

    def __init__(self, *counts: int) -> None:
        self._counts = counts

    def __iter__(self) -> Iterator[Any]:
        worker = data.get_worker_info().id
        for at in range(self._counts[worker]):
            yield torch.tensor(100 * worker + at)


class Offset(Stream):
    """Its worker is told where to begin in the way that torch's documentation shows."""

    begins = 0

    def __iter__(self) -> Iterator[Any]:
        return (sample + self.begins for sample in super().__iter__())


def begin(worker: int) -> None:
    data.get_worker_info().dataset.begins = 1000 * (worker + 1)


def plainly(batches: Any) -> list[Any]:
    """Return batches such that they can be compared."""
    if isinstance(batches, torch.Tensor):
        return [str(batches.dtype), batches.stride(), batches.tolist()]
    if isinstance(batches, dict):
        return [(key, plainly(value)) for key, value in batches.items()]
    return [plainly(one) for one in batches] if isinstance(batches, list) else batches


def rows(**options: Any) -> Any:
    return data.DataLoader(Rows(), num_workers=2, **options)


def stream(*counts: int, of: type[Stream] = Stream, **options: Any) -> Any:
    return data.DataLoader(of(*counts), num_workers=len(counts), **options)


def shuffled(**options: Any) -> Any:
    generator = torch.Generator().manual_seed(3)
    return rows(batch_size=4, shuffle=True, generator=generator, **options)


LOADERS = {
    "rows": lambda: rows(batch_size=4),
    "rows, the last ones dropped": lambda: rows(batch_size=4, drop_last=True),
    "rows, shuffled": shuffled,
    "rows that are batches": lambda: rows(batch_size=None),
    "rows, not collated": lambda: rows(batch_size=2, collate_fn=list),
    "one worker": lambda: stream(23, batch_size=4),
    "workers with as much": lambda: stream(24, 24, batch_size=4),
    "workers with more and less": lambda: stream(9, 40, 24, batch_size=4),
    "their last ones dropped": lambda: stream(9, 40, 24, batch_size=4, drop_last=True),
    "a worker with nothing": lambda: stream(0, 5, 0, batch_size=None),
    "nothing": lambda: stream(0, 0),
    "workers that are told": lambda: stream(7, 8, of=Offset, batch_size=2, worker_init_fn=begin),
    "spawned": lambda: rows(batch_size=4, multiprocessing_context="spawn"),
}


@pytest.mark.parametrize("name", LOADERS)
def test_they_are_the_same_batches_in_the_same_order(name: str) -> None:
    levers, plain, other = Telling(), LOADERS[name](), LOADERS[name]()
    loader = in_parcels(other, 3, levers)
    assert loader is not other
    assert levers.told == [("parcels", "used", "3 batches at a time")]
    assert plainly(list(loader)) == plainly(list(plain))
    assert loader.num_workers == plain.num_workers
    if not isinstance(plain.dataset, Stream):
        assert len(loader) == len(plain)


def test_workers_that_stay_serve_epoch_after_epoch() -> None:
    plain, other = (shuffled(persistent_workers=True) for _ in range(2))
    loader = in_parcels(other, 5, Telling())
    for _ in range(3):
        assert plainly(list(loader)) == plainly(list(plain))


def test_an_epoch_that_is_left_early_leaves_nothing_for_the_next_one() -> None:
    options = {"batch_size": 4, "persistent_workers": True}
    loader = in_parcels(rows(**options), 2, Telling())
    for _ in itertools.islice(loader, 3):
        pass
    assert plainly(list(loader)) == plainly(list(rows(**options)))


def test_workers_begin_before_a_batch_is_asked_for() -> None:
    before = len(torch.multiprocessing.active_children())
    iterator = iter(in_parcels(rows(batch_size=4), 2, Telling()))
    assert len(torch.multiprocessing.active_children()) == before + 2
    assert len(list(iterator)) == 7


@pytest.mark.parametrize(
    ("loader", "reason"),
    [
        (lambda: [1, 2], "this needs a torch.utils.data.DataLoader, not a list"),
        (lambda: data.DataLoader(Rows()), "no worker processes"),
        (
            lambda: rows(batch_sampler=data.BatchSampler(range(9), 2, drop_last=False)),
            "a batch_sampler of its own",
        ),
        (lambda: rows(in_order=False), "in_order=False"),
    ],
)
def test_where_it_cannot_be_the_loader_stays_and_says_why(loader: Any, reason: str) -> None:
    levers, made = Telling(), loader()
    assert in_parcels(made, 4, levers) is made
    ((lever, outcome, why),) = levers.told
    assert (lever, outcome) == ("parcels", "unable")
    assert reason in str(why)


def test_it_can_be_switched_off() -> None:
    levers, made = Telling(ETT_PARCELS="0"), rows()
    assert in_parcels(made, 4, levers) is made
    assert levers.told == [("parcels", "off", "ETT_PARCELS=0")]


@pytest.mark.parametrize("batches", [0, -1, 1.5, True, "4", None])
def test_a_number_that_is_none_is_refused(batches: Any) -> None:
    with pytest.raises(ConfigurationError, match="batches"):
        in_parcels(rows(), batches, Telling())


class Point(NamedTuple):
    """A batch with names."""

    x: Any
    y: Any


@dataclass
class Bag:
    """A class of the user's own."""

    values: Any
    lengths: Any


def test_tensors_come_out_as_they_went_in() -> None:
    one = torch.arange(24.0).reshape(2, 3, 4)
    odd = {
        "transposed": one.permute(2, 0, 1),
        "none": torch.empty(0, 5),
        "number": torch.tensor(3.5),
        "truth": torch.tensor([True, False, True]),
        "half": torch.ones(3, dtype=torch.bfloat16),
        "complex": torch.ones(3, dtype=torch.complex64),
        "conjugate": torch.tensor([1 + 2j]).conj(),
        "expanded": torch.tensor([7]).expand(5),
        "strided": torch.arange(10)[::3],
        "strided and expanded": torch.arange(4)[::3].expand(2, 2),
        "sparse": torch.eye(3).to_sparse(),
        "learned": torch.ones(2, requires_grad=True),
        "parameter": torch.nn.Parameter(torch.ones(2)),
    }
    batches = [odd, Point(one, [one, "text", None]), Bag(one[0], {"n": 3})]
    came = Parcel.of(batches).batches()
    for name, tensor in odd.items():
        found = came[0][name]
        assert (type(found), found.dtype, found.shape) == (type(tensor), tensor.dtype, tensor.shape)
        assert found.requires_grad == tensor.requires_grad
        assert found.layout == tensor.layout
        assert torch.equal(found.to_dense(), tensor.to_dense()), name
        if tensor.layout == torch.strided:
            assert (found.stride(), found.is_conj()) == (tensor.stride(), tensor.is_conj()), name
    assert isinstance(came[1], Point)
    assert came[1].x is came[1].y[0]  # one tensor is one tensor
    assert came[1].y[1:] == ["text", None]
    assert isinstance(came[2], Bag)
    assert torch.equal(came[2].values, one[0])
    came[2].values.zero_()  # and another one is another one
    assert torch.equal(came[1].x, one)
    assert not came[1].x._is_view()


TENSORS = st.builds(
    lambda dtype, shape, order: (
        torch.arange(1, 1 + torch.Size(shape).numel())
        .to(dtype)
        .reshape(shape)
        .permute(
            order[: len(shape)]
            if sorted(order[: len(shape)]) == [*range(len(shape))]
            else ()
            if not shape
            else [*range(len(shape))][::-1]
        )
    ),
    st.sampled_from([torch.uint8, torch.int16, torch.float32, torch.int64, torch.complex128]),
    st.lists(st.integers(0, 4), max_size=3),
    st.permutations(range(3)),
)
BATCHES = st.recursive(
    TENSORS | st.integers() | st.text(max_size=3),
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(st.text(max_size=2), parts),
    max_leaves=8,
)


@given(st.lists(BATCHES, max_size=5))
def test_any_batches_come_out_as_they_went_in(batches: list[Any]) -> None:
    parcel = Parcel.of(batches, 3)
    assert plainly(parcel.batches()) == plainly(batches)
    assert (parcel.worker, len(parcel.batches())) == (3, len(batches))


def sent(counts: Sequence[int], most: int) -> Iterator[Parcel]:
    """Yield parcels as a loader has them from workers with so many batches."""
    left = {worker: [f"{worker}.{at}" for at in range(n)] for worker, n in enumerate(counts)}
    while left:
        for worker in list(left):
            batches, left[worker] = left[worker][:most], left[worker][most:]
            if batches:
                yield Parcel.of(batches, worker)
            if len(batches) < most:
                del left[worker]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=4), st.integers(1, 4))
def test_workers_take_turns_as_they_do_with_single_batches(counts: list[int], most: int) -> None:
    singly = itertools.zip_longest(
        *([f"{w}.{at}" for at in range(n)] for w, n in enumerate(counts))
    )
    expected = [batch for turn in singly for batch in turn if batch is not None]
    assert list(in_turn(sent(counts, most), len(counts), most)) == expected
