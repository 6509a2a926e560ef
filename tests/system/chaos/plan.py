"""What is done to which training, and when: a pure function of seed and number."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

PER_TRAINING = 5
LOCAL, SLURM = "local_detached", "slurm"


class Target(StrEnum):
    """What is killed, or done by a user, or by Slurm for a more urgent job."""

    TASK = "task process"
    TASK_SUPERVISOR = "task supervisor"
    TRIGGERER = "triggerer"
    SCHEDULER = "scheduler"
    DAG_PROCESSOR = "dag-processor"
    LOCAL_SUPERVISOR = "local supervisor"
    BATCH = "batch script"
    SLURMCTLD = "slurmctld"
    SLURMDBD = "slurmdbd"
    SLURMD = "slurmd"
    AGENT = "agent"
    TRAINER = "trainer"
    PREEMPT = "preempt"
    CLEAR = "clear"
    MARK_FAILED = "mark failed"


class Moment(StrEnum):
    """When: at any time, or in a narrow window."""

    ANY = "any time"
    SUBMIT = "at a submission"
    HANDOVER = "at a claim by the task"
    SAVING = "during a save"
    END = "at the end"


class Mode(StrEnum):
    """Who watches the training."""

    HELD = "held"
    DEFERRED = "deferred"


COMPONENTS = frozenset({Target.TRIGGERER, Target.SCHEDULER, Target.DAG_PROCESSOR})
"""Airflow's own processes, which all trainings share."""

DAEMONS = frozenset({Target.SLURMCTLD, Target.SLURMDBD, Target.SLURMD})
"""Slurm's own, which all trainings share, but for a node's: that is a node of the training."""

IN_A_TASK = frozenset({Target.TASK, Target.TASK_SUPERVISOR})

USERS = frozenset({Target.CLEAR, Target.MARK_FAILED})

SHARED = COMPONENTS | DAEMONS | {Target.PREEMPT}
"""What is done in the course of one training and may hit others, too."""

FATAL = frozenset(
    {
        *(Target.TRAINER, Target.AGENT, Target.LOCAL_SUPERVISOR, Target.BATCH, Target.PREEMPT),
    }
)
"""What an attempt does not survive; nor does it its node's loss."""

STOPPED = "stopped"
"""The variant of slurmctld that is told to end, as for an upgrade: it saves what it knows."""

NODE = "node"
"""The variant of slurmd that takes all with it that runs on its node, as a loss of power does."""

VARIANTS: dict[Target, tuple[str, ...]] = {
    Target.TRIGGERER: ("whole", "rest told", "rest left", "runner"),
    Target.SCHEDULER: ("whole", "rest told", "rest left"),
    Target.LOCAL_SUPERVISOR: ("supervisor", "guard", "both"),
    Target.SLURMCTLD: ("killed", STOPPED),
    Target.SLURMD: ("daemon", NODE),
}
"""Of a component: all its processes (a container's death), the main one with the rest told to end
(systemd), the main one alone; ``runner`` is the triggerer's child that runs the triggers."""

_SHARES_LOCALLY = {
    Target.TASK: 4,
    Target.TASK_SUPERVISOR: 3,
    Target.TRIGGERER: 4,
    Target.SCHEDULER: 3,
    Target.DAG_PROCESSOR: 2,
    Target.LOCAL_SUPERVISOR: 3,
    Target.AGENT: 3,
    Target.TRAINER: 3,
    Target.CLEAR: 3,
    Target.MARK_FAILED: 2,
}
_SHARES_ON_SLURM = {
    Target.TASK: 4,
    Target.TASK_SUPERVISOR: 3,
    Target.TRIGGERER: 3,
    Target.SCHEDULER: 2,
    Target.DAG_PROCESSOR: 1,
    Target.SLURMCTLD: 6,
    Target.SLURMD: 6,
    Target.SLURMDBD: 2,
    Target.BATCH: 2,
    Target.AGENT: 2,
    Target.TRAINER: 2,
    Target.PREEMPT: 3,
    Target.CLEAR: 2,
    Target.MARK_FAILED: 2,
}
_SHARES = {LOCAL: _SHARES_LOCALLY, SLURM: _SHARES_ON_SLURM}
_OPENS = {
    **dict.fromkeys(FATAL, (Moment.SUBMIT,)),
    **dict.fromkeys(IN_A_TASK, (Moment.HANDOVER,)),
    Target.CLEAR: (Moment.SUBMIT, Moment.HANDOVER),
}
"""The windows that come after an injection; at first both come."""

_AT_THE_END = IN_A_TASK | {
    *(Target.TRIGGERER, Target.SCHEDULER),
    *(Target.SLURMCTLD, Target.SLURMDBD),
}


@dataclass(frozen=True, slots=True)
class Injection:
    """One blow: ``delay_s`` after its window has opened and what it kills is there."""

    target: Target
    variant: str
    moment: Moment
    delay_s: float

    def __str__(self) -> str:
        what = f"{self.target} ({self.variant})" if self.variant else str(self.target)
        return f"{what} {self.moment} + {self.delay_s:.2f} s"


@dataclass(frozen=True, slots=True)
class Course:
    """What one training goes through, in order.

    ``requeues`` says whether its scheduler is to start it again by itself, None where none could.
    """

    number: int
    mode: Mode
    injections: tuple[Injection, ...]
    requeues: bool | None = None

    @property
    def kind(self) -> str:
        """What its DAG is called for."""
        ways = {None: "", True: "_requeued", False: "_relaunched"}
        return f"{self.mode}{ways[self.requeues]}"

    @property
    def marked(self) -> bool:
        """Whether it ends by a user's mark."""
        return self.injections[-1].target is Target.MARK_FAILED


def plan(seed: int, count: int, scheduler: str = LOCAL) -> list[Course]:
    """Return courses with ``count`` injections in all, the same for the same seed."""
    rng = random.Random(seed)
    hands = _deal(rng, count, _SHARES[scheduler])
    courses = []
    for number, hand in enumerate(hands):
        mode = (Mode.HELD, Mode.DEFERRED)[(number + seed) % 2]
        requeues = bool((number // 2 + seed) % 2) if scheduler == SLURM else None
        courses.append(Course(number, mode, _course(rng, mode, hand), requeues))
    return courses


def _deal(rng: random.Random, count: int, shares: Mapping[Target, int]) -> list[list[Target]]:
    """Give each training its targets; a mark ends a training, so that none gets two."""
    deck = list(_deck(rng, count, shares))
    marks = [target for target in deck if target is Target.MARK_FAILED]
    others = [target for target in deck if target is not Target.MARK_FAILED]
    hands: list[list[Target]] = [[] for _ in range(max(1, round(count / PER_TRAINING)))]
    for hand, mark in zip(rng.sample(hands, len(marks)), marks, strict=True):
        hand.append(mark)
    for target in others:
        min(hands, key=len).append(target)
    return hands


def _deck(rng: random.Random, count: int, shares: Mapping[Target, int]) -> Iterable[Target]:
    whole = [target for target, share in shares.items() for _ in range(share)]
    deck: list[Target] = []
    while len(deck) < count:
        deck += rng.sample(whole, len(whole))
    return deck[:count]


def _course(rng: random.Random, mode: Mode, hand: Sequence[Target]) -> tuple[Injection, ...]:
    targets = sorted(rng.sample(hand, len(hand)), key=lambda t: t is Target.MARK_FAILED)
    ends = targets[-1] in _AT_THE_END and rng.random() < 0.6
    if mode is Mode.DEFERRED:
        # A task's process lives at the beginning, after a clear, and at the end.
        last = targets[-1:] if ends else []
        rest = targets[: len(targets) - len(last)]
        targets = sorted(rest, key=lambda t: t not in IN_A_TASK | {Target.CLEAR}) + last
        targets.sort(key=lambda t: t is Target.MARK_FAILED)
    before = [None, *targets]
    injections = [_injection(rng, t, _moments(t, b)) for t, b in zip(targets, before, strict=False)]
    if ends and targets[-1] in _AT_THE_END:
        target, variant = injections[-1].target, injections[-1].variant
        longest_s = 0.2 if target in IN_A_TASK else 3.0
        injections[-1] = Injection(target, variant, Moment.END, rng.uniform(0, longest_s))
    return tuple(injections)


def _moments(target: Target, before: Target | None) -> list[Moment]:
    """Return when a target may be hit after the one before it, as often as they shall occur."""
    opened = (Moment.SUBMIT, Moment.HANDOVER) if before is None else _OPENS.get(before, ())
    if target in COMPONENTS | {Target.SLURMCTLD, Target.SLURMDBD}:
        return [Moment.ANY, *opened]
    return [Moment.ANY, *opened, *([] if target in IN_A_TASK else [Moment.SAVING])]


def _injection(rng: random.Random, target: Target, moments: Sequence[Moment]) -> Injection:
    moment = rng.choice(moments)
    longest_s = 0.5 if moment is not Moment.ANY else 1.0 if target in IN_A_TASK else 6.0
    delay_s = rng.uniform(0, longest_s)
    return Injection(target, rng.choice(VARIANTS.get(target, ("",))), moment, delay_s)
