"""Components: which one a phase belongs to, and how configuration changes that."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_ett.errors import ConfigurationError
from airflow_ett.metric import COMPONENTS, Component, Components

FIXED = ("effective", "unattributed")
OPEN = [name for name in COMPONENTS if name not in FIXED]
NAMES = st.text("abz_.é", min_size=1, max_size=8)
MOVABLE = [phase for name in OPEN for phase in COMPONENTS[name].phases]


def test_every_phase_has_one_component() -> None:
    phases = [phase for part in COMPONENTS.values() for phase in part.phases]
    assert len(phases) == len(set(phases))
    for name, part in COMPONENTS.items():
        assert {COMPONENTS.of(phase) for phase in part.phases} == {name}
        assert all(COMPONENTS.knows(phase) for phase in part.phases)


@pytest.mark.parametrize(
    ("phase", "component"),
    [
        ("wasted.mine", "wasted"),
        ("scheduling.image_pull", "scheduling"),
        ("checkpoint_restore.read", "trainer_init"),
        ("compile.inductor.triton", "pt2_compile"),
        ("trainer_init.compile.x", "trainer_init"),
        ("mine.compile", None),
        ("compiler.x", None),
        ("mine", None),
        (".", None),
        ("", None),
    ],
)
def test_a_prefix_names_the_component(phase: str, component: str | None) -> None:
    assert COMPONENTS.knows(phase) == (component is not None)
    assert COMPONENTS.of(phase) == (component or "wasted")
    assert COMPONENTS.of(phase, in_loop=False) == (component or "trainer_init")


@pytest.mark.parametrize("phase", ["train.mine", "effective.mine", "unattributed.mine"])
def test_no_prefix_leads_to_effective_or_unattributed(phase: str) -> None:
    assert not COMPONENTS.knows(phase)
    assert COMPONENTS.of(phase) == "wasted"


def test_the_longest_prefix_counts() -> None:
    changed = COMPONENTS.changed(phases={"compile.cache": "wasted"})
    assert changed.of("compile.cache") == changed.of("compile.cache.remote.x") == "wasted"
    assert changed.of("compile.other") == "pt2_compile"


def test_changing_owners_and_phases() -> None:
    changed = COMPONENTS.changed(
        owners={"wasted": "storage"}, phases={"evaluation": "shutdown", "mine": "trainer_init"}
    )
    assert changed["wasted"].owner == "storage"
    assert "evaluation" not in changed["wasted"].phases
    assert changed["shutdown"].phases == ("shutdown", "publish", "evaluation")
    assert changed["trainer_init"].phases[-1] == "mine"
    assert changed.of("mine") == "trainer_init"
    assert list(changed) == list(COMPONENTS)
    assert "evaluation" in COMPONENTS["wasted"].phases


def test_saying_what_is_so_changes_nothing() -> None:
    phases = {phase: name for name, part in COMPONENTS.items() for phase in part.phases}
    owners = {name: part.owner for name, part in COMPONENTS.items()}
    same = COMPONENTS.changed(owners=owners, phases=phases)
    assert same == COMPONENTS.changed() == COMPONENTS
    assert hash(same) == hash(COMPONENTS)
    assert {name: part.phases for name, part in same.items()} == {
        name: part.phases for name, part in COMPONENTS.items()
    }
    assert COMPONENTS.changed(owners={"wasted": "x"}) != COMPONENTS


@pytest.mark.parametrize(
    ("changes", "option", "problem"),
    [
        ({"owners": {"compile": "x"}}, "component_owners", "no component 'compile'; .*pt2_compile"),
        ({"phases": {"mine": "nowhere"}}, "phase_components", "no component 'nowhere'; .*wasted"),
        ({"phases": {"train": "wasted"}}, "phase_components", "train=wasted: effective neither"),
        ({"phases": {"replay": "effective"}}, "phase_components", "effective neither"),
        ({"phases": {"mine": "unattributed"}}, "phase_components", "unattributed neither"),
        ({"phases": {"unattributed": "effective"}}, "phase_components", "unattributed neither"),
    ],
)
def test_what_cannot_be_changed(
    changes: dict[str, dict[str, str]], option: str, problem: str
) -> None:
    with pytest.raises(ConfigurationError, match=problem) as raised:
        COMPONENTS.changed(**changes)
    assert raised.value.parameter == f"[ett] {option}"


def test_nothing_can_be_changed_in_place() -> None:
    parts = {"wasted": Component("a", ("x",))}
    components = Components(parts)
    parts["wasted"] = Component("b", ())
    assert components["wasted"].owner == "a"
    with pytest.raises(TypeError):
        components["wasted"] = parts["wasted"]  # type: ignore[index]


@given(st.dictionaries(NAMES | st.sampled_from(MOVABLE), st.sampled_from(OPEN)))
def test_any_change_leaves_every_phase_in_one_component(phases: dict[str, str]) -> None:
    changed = COMPONENTS.changed(phases=phases)
    listed = [phase for part in changed.values() for phase in part.phases]
    assert len(listed) == len(set(listed))
    assert all(changed.of(phase) == component for phase, component in phases.items())
    assert [changed[name] for name in FIXED] == [COMPONENTS[name] for name in FIXED]


@given(st.sampled_from([*COMPONENTS, *MOVABLE, "train"]), NAMES, st.booleans())
def test_every_name_belongs_to_some_open_component(prefix: str, rest: str, in_loop: bool) -> None:
    for phase in (f"{prefix}.{rest}", rest):
        assert COMPONENTS.of(phase, in_loop=in_loop) in OPEN
