"""Reasons as torch 2.13 really gives them, each from code that changed just this."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_ett.metric.plans.guards import read

RECORDED = [
    json.loads(line)
    for line in Path(__file__).with_name("recompile_reasons.jsonl").read_text().splitlines()
]


@pytest.mark.parametrize("row", RECORDED, ids=lambda row: row["case"])
def test_what_changed(row: dict[str, Any]) -> None:
    change = read(row["reason"])
    assert (change.kind, change.what) == (row["kind"], row["what"])
    assert list(change.values) == row["values"]
    assert change.add or change.kind in ("first_step", "other")
    assert not any("{name}" in line or "{dim}" in line for line in change.add)


def added(case: str) -> tuple[str, ...]:
    return next(read(row["reason"]).add for row in RECORDED if row["case"] == case)


def environment(source: str) -> str:
    return f'env={{"TORCH_COMPILE_DYNAMIC_SOURCES": "{source}"}}  # of the operator'


def test_lines_for_the_size_of_a_batch() -> None:
    assert added("both_dims") == (
        "mark_dynamic(batch)  # before the compiled call, in every step",
        environment("L['x']"),
        "pad_to(batch, {most})  # and leave the added rows out of the loss",
    )
    assert added("second_dim") == (
        "mark_dynamic(batch, dim=1)  # before the compiled call, in every step",
        environment("L['x']"),
    )
    assert added("one_row")[0] == "DataLoader(..., drop_last=True)"


@pytest.mark.parametrize(
    ("case", "source"),
    [
        ("dict_batch", "L['batch']['items']['ids']"),
        ("list_batch", "L['batch'][0]"),
        ("dc_batch", "L['batch'].a"),
        ("computed_tensor", "L['___stack0']"),
        ("int_arg", "L['epoch']"),
        ("global_int", "G['STEP']"),
        ("self_int", "L['s'].step"),
    ],
)
def test_a_source_has_torchs_own_name(case: str, source: str) -> None:
    change = next(read(row["reason"]) for row in RECORDED if row["case"] == case)
    assert change.source == source
    assert environment(source) in change.add


def test_an_older_torch_names_locals_in_full() -> None:
    change = read("0/0: tensor 'L['b']['y']' size mismatch at index 0. expected 8, actual 4")
    assert (change.what, change.source) == ("size of dimension 0 of b['y']", "L['b']['y']")


def test_what_the_code_computes_cannot_be_marked_before_it() -> None:
    assert added("computed_tensor") == (environment("L['___stack0']"),)
    assert added("buffer") == (environment("L['self']._buffers['mem']"),)


def test_sources_are_named_only_where_they_help() -> None:
    helped = {row["kind"] for row in RECORDED if read(row["reason"]).source}
    assert helped == {"size", "number"}
    assert not read("0/0: lr == 0.1  # return x * lr").source


def test_what_needs_a_graph_of_its_own() -> None:
    own = {row["kind"] for row in RECORDED if not read(row["reason"]).avoidable}
    assert own == {"training_mode", "gradient_mode", "first_step", "branch", "value", "other"}


@pytest.mark.parametrize("text", ["0/0: ___check_new_things(x) # code", "?", "0/1: ", "\n0/0: x"])
def test_unknown_words_are_handed_on(text: str) -> None:
    change = read(text)
    assert change.kind == "other"
    assert change.what
    assert change.what in text
    assert not change.add
    assert not change.avoidable


def test_where_the_code_stands_is_not_part_of_the_guard() -> None:
    assert read("0/0: len(b) != 1\nUser stack trace:\n  File train.py").what == "length of b"


def test_no_more_is_read_than_torch_would_write() -> None:
    assert len(read("0/0: " + "x" * 10**6).what) == 2000
