"""Colours stay apart for everybody, and what is written on them can be read."""

from itertools import combinations, pairwise

import pytest

from airflow_ett.metric.phases import COMPONENTS
from airflow_ett.ui.charts import phase_token
from airflow_ett.ui.data import COMPONENT_LABELS, COMPONENT_TOKENS
from tests.ui.colour import ciede2000, contrast, distance, from_oklch, linear, to_oklch, written
from tests.ui.stylesheet import THEMES

STACK = [f"ett-{COMPONENT_TOKENS[name]}" for name in COMPONENT_LABELS]
PHASES = {phase: name for name, part in COMPONENTS.items() for phase in part.phases}
LABELS = ("#ffffff", "#161d2d")
FOLLOWING = {
    "launch": [
        *("failure_detection", "retry_wait", "queue", "hardware_setup", "launcher_init"),
        *("device_init", "process_group_init", "preproc_creation", "train_module_creation"),
        *("init_plugins", "pre_train", "first_batch", "checkpoint_restore", "compile", "replay"),
    ],
    "launch without names": ["queue", "launcher_init", "trainer_init", "first_batch", "train"],
    "interval": ["data_wait", "replay", "train", "loop_other", "data_wait", "train", "replay"],
    "loop": ["train", "checkpoint_save", "train", "evaluation", "train", "stalled", "train"],
    "after the loop's rest": ["loop_other", "evaluation", "data_wait", "checkpoint_save", "replay"],
    "failure": ["loop_other", "failure_detection", "train", "data_wait", "failure_detection"],
    "cached": ["compile_cache_load", "replay"],
    "end": ["train", "shutdown", "publish"],
}

pytestmark = pytest.mark.parametrize("theme", THEMES)


def test_components_stay_apart(theme: str) -> None:
    colours = THEMES[theme]
    for one, other in combinations(STACK, 2):
        neighbours = STACK.index(other) - STACK.index(one) == 1 or one == "ett-effective"
        found = distance(colours[one], colours[other])
        assert round(found, 1) >= (16 if neighbours else 14), f"{one} and {other}: {found:.1f}"


@pytest.mark.parametrize("kind", FOLLOWING)
def test_phases_that_follow_each_other_stay_apart(theme: str, kind: str) -> None:
    colours = THEMES[theme]
    for one, other in pairwise(FOLLOWING[kind]):
        found = distance(colours[f"ph-{one}"], colours[f"ph-{other}"])
        assert found >= 7, f"{one}, then {other}: {found:.1f}"


def test_no_two_losses_are_taken_for_each_other(theme: str) -> None:
    """Seven steps of one colour. Between replay and checkpoint_save little lightness is left, so
    failure_detection is a duller one."""
    colours = THEMES[theme]
    for one, other in combinations(COMPONENTS["wasted"].phases, 2):
        assert distance(colours[f"ph-{one}"], colours[f"ph-{other}"]) >= 7


def test_every_phase_has_its_colour_and_no_other(theme: str) -> None:
    for prefix in ("ph", "on"):
        named = {name.partition("-")[2] for name in THEMES[theme] if name.startswith(f"{prefix}-")}
        assert named == set(PHASES)
    assert {phase_token(phase, component) for phase, component in PHASES.items()} == {
        f"ph-{phase}" for phase in PHASES
    }


@pytest.mark.parametrize("phase", PHASES)
def test_a_phase_is_a_lightness_step_of_its_component(theme: str, phase: str) -> None:
    colours = THEMES[theme]
    base = to_oklch(linear(colours[f"ett-{COMPONENT_TOKENS[PHASES[phase]]}"]))
    step = to_oklch(linear(colours[f"ph-{phase}"]))
    if base[1] > 0.02:
        assert abs((step[2] - base[2] + 180) % 360 - 180) < 4
    assert step[1] <= base[1] + 0.005


@pytest.mark.parametrize("phase", PHASES)
def test_a_phase_can_be_labelled(theme: str, phase: str) -> None:
    ground, text = (THEMES[theme][f"{prefix}-{phase}"] for prefix in ("ph", "on"))
    assert text == max(LABELS, key=lambda label: contrast(label, ground))
    assert contrast(text, ground) >= 4.5


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ((50, 2.6772, -79.7751), (50, 0, -82.7485), 2.0425),
        ((50, -1.3802, -84.2814), (50, 0, -82.7485), 1.0),
        ((50, 0, 0), (50, -1, 2), 2.3669),
        ((50, 2.49, -0.001), (50, -2.49, 0.0009), 7.1792),
        ((50, 2.5, 0), (50, 0, -2.5), 4.3065),
        ((50, 2.5, 0), (73, 25, -18), 27.1492),
        ((60.2574, -34.0099, 36.2677), (60.4626, -34.1751, 39.4387), 1.2644),
        ((2.0776, 0.0795, -1.135), (0.9033, -0.0636, -0.5514), 0.9082),
    ],
    ids=str,
)
def test_the_distance_is_the_published_one(
    theme: str,
    one: tuple[float, float, float],
    other: tuple[float, float, float],
    expected: float,
) -> None:
    assert ciede2000(one, other) == pytest.approx(expected, abs=1e-4)
    assert ciede2000(other, one) == pytest.approx(expected, abs=1e-4)


def test_oklch_goes_both_ways(theme: str) -> None:
    for colour in THEMES[theme].values():
        if len(colour) == 7:
            assert written(from_oklch(*to_oklch(linear(colour)))) == colour
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
