"""What the API answers. Unknown is null; percents are 0 to 100."""

from typing import Annotated, Any

from fastapi.responses import Response
from pydantic import BaseModel, Field

Ns = Annotated[int, Field(description="Length in nanoseconds.")]
Instant = Annotated[int, Field(description="UTC nanoseconds since 1970.")]
Percent = Annotated[float | None, Field(description="0 to 100; null where it is not known.")]
Count = Annotated[int, Field(ge=0)]
Next = Annotated[
    str | None, Field(description="`cursor` of the next page; null where this is the last.")
]


class Problem(BaseModel):
    """Why a request was not answered."""

    detail: str = Field(description="What happened and what to do.")
    reference: str | None = Field(None, description="What finds a failure in the server's log.")


class Job(BaseModel):
    """One training. Its numbers are provisional until it is frozen."""

    job: str = Field(description="Id: 20 hexadecimal digits.")
    deployment: str
    dag_id: str
    run_id: str
    task_id: str
    map_index: int = Field(description="-1 where the task is not mapped.")
    generation: int = Field(description="Grows when a task whose job has ended is cleared.")
    state: str = Field(description="running, succeeded, failed or cancelled.")
    quality: str = Field(description="complete, partial or launcher_only.")
    frozen: bool = Field(description="Whether it has ended.")
    begin_ns: Instant
    end_ns: Instant
    wall_ns: Ns
    held_ns: int = Field(description="Nanoseconds in which accelerators were allocated.")
    effective_ns: int = Field(description="Nanoseconds that trained on new data.")
    ett_pct: Percent
    tts_ns: int | None = Field(description="Time to start in nanoseconds.")
    ttr_ns: int | None = Field(description="Times to recover after failures, in nanoseconds.")
    recoveries: int | None = Field(description="How many recoveries `ttr_ns` adds up.")
    nof: Count
    nof_by_cause: dict[str, int]
    components_ns: dict[str, int] = Field(
        description="Nanoseconds by component; they add up to `wall_ns`."
    )
    attempts: Count
    accelerators: int
    released_ns: int | None = Field(
        description="Nanoseconds of publishing that held no accelerators of the training."
    )
    revision: int = Field(description="Grows when the numbers of an ended job change.")
    updated_ns: Instant

    @classmethod
    def of(cls, row: dict[str, Any]) -> "Job":
        """Return the job of a row; without an ETT% its start is not known."""
        tts_ns = row["tts_ns"] if row["ett_pct"] is not None else None
        # A log may name a cause with half a character.
        causes = {c.encode(errors="replace").decode(): n for c, n in row["nof_by_cause"].items()}
        return cls(**{**row, "tts_ns": tts_ns, "nof_by_cause": causes})


class JobPage(BaseModel):
    """Jobs, newest first."""

    jobs: list[Job]
    next: Next


class Submission(BaseModel):
    """One app handed to a scheduler."""

    submission: int
    submitted_ns: Instant
    app: str | None
    handle: str | None
    layer: str | None = Field(description="first, relaunch, airflow, scheduler or elastic.")
    try_number: int | None = Field(description="Airflow's try.")
    resume_cursor: int | None = Field(description="Samples.")


class PhaseTime(BaseModel):
    """How long an attempt spent in a phase."""

    phase: str
    component: str
    ns: Ns


class Lever(BaseModel):
    """What became of one of the trainer's levers: an outcome, and one of its reasons."""

    lever: str = Field(description="Such as compile_cache.")
    outcome: str = Field(description="used, missed, saved, off or unable.")
    reason: str | None = Field(description="Why, in words.")
    duration_ns: int | None = Field(description="Nanoseconds.")
    bytes: int | None
    rank: int = Field(description="Who told; of several that tell the same the lowest one.")


class Attempt(BaseModel):
    """A trainer's life from one start to the next interruption."""

    submission: int
    scheduler_restart: int
    elastic_restart: int
    try_number: int | None = Field(description="Airflow's try.")
    layer: str | None = Field(description="Who began it.")
    cause: str | None = Field(description="Null for a success, and while it runs.")
    begin_ns: int | None = Field(description="UTC nanoseconds.")
    end_ns: int | None = Field(description="UTC nanoseconds.")
    detected_ns: int | None = Field(description="When its end was known, in UTC nanoseconds.")
    cursor_from: int | None = Field(description="Samples.")
    cursor_to: int | None = Field(description="Samples.")
    resumed_from: Any = Field(description="The checkpoint that it resumed from.")
    evidence: Any = Field(description="What the cause was concluded from.")
    host: str | None = Field(description="Of its first node; `result` has those of all.")
    log: str | None = Field(description="Where rank 0's output is.")
    levers: list[Lever]
    phases: list[PhaseTime] = Field(description="They add up to the attempt's time.")


class Checkpoint(BaseModel):
    """One save."""

    uri: str
    attempt: str | None
    cursor: int | None = Field(description="Samples.")
    saved_ns: int | None = Field(description="UTC nanoseconds.")
    committed_ns: int | None = Field(description="UTC nanoseconds; null: it never was.")
    blocking_ns: int | None = Field(description="How long training stood, in nanoseconds.")
    upload_ns: int | None = Field(description="Nanoseconds.")
    bytes: int | None
    anchor: bool = Field(description="Whether a finished training left it for publishing.")


class Publish(BaseModel):
    """A version published from one of the job's checkpoints, apart from its trainer."""

    name: str | None = Field(description="The model's name in the registry.")
    version: str | None
    registry: str | None
    uri: str | None
    checkpoint: str | None
    cursor: int | None = Field(description="Of the checkpoint, in samples.")
    bytes: int | None = Field(description="All of its files together.")
    digest: str | None = Field(description="SHA-256 of the weights' file.")
    begin_ns: int | None = Field(description="UTC nanoseconds.")
    end_ns: int | None = Field(description="UTC nanoseconds.")
    existed: bool = Field(description="Whether the publisher found it there, whole.")
    released_ns: int = Field(
        description="For how long publishing in the trainer would have held the accelerators."
    )


class JobDetails(BaseModel):
    """One training with all that is known of it."""

    job: Job
    submissions: list[Submission]
    attempts: list[Attempt]
    checkpoints: list[Checkpoint]
    publishes: list[Publish]
    result: dict[str, Any] = Field(
        description="All that the metric says: the keys of `airflow-ett report --json`."
    )


class AttemptPhase(BaseModel):
    """How long an attempt spent in a phase, and who owns the phase's component."""

    submission: int
    scheduler_restart: int
    elastic_restart: int
    phase: str
    component: str
    owner: str = Field(description="Empty where nobody owns the component.")
    ns: Ns


class JobPhases(BaseModel):
    """The phases of a job's attempts; they add up to its wall clock."""

    job: str
    phases: list[AttemptPhase]


class EventPage(BaseModel):
    """Events of a job, by writer and number: lines of the event log."""

    events: list[dict[str, Any]]
    next: Next


class Days(BaseModel):
    """A period of whole days."""

    first: str = Field(description="ISO 8601.")
    last: str = Field(description="ISO 8601; included.")
    timezone: str


class ComponentShare(BaseModel):
    """What a component took."""

    component: str
    owner: str
    ns: Ns
    accelerator_ms: int = Field(description="Accelerator-milliseconds.")
    share_pct: Percent


class Summary(BaseModel):
    """Sums over the jobs that ended in a period.

    Shares and ETT% are weighted by accelerator time, by wall clock where no job held accelerators;
    jobs without ETT% (`jobs` - `measured`) take no part in them.
    """

    period: Days
    jobs: Count
    measured: int = Field(description="Jobs with an ETT%.")
    running: int = Field(description="Jobs that have not ended, which no sum counts.")
    attempts: Count
    wall_ns: int = Field(description="Wall clock of all jobs, in nanoseconds.")
    held_ns: int = Field(description="Time of all jobs that held accelerators, in nanoseconds.")
    effective_ns: int = Field(description="Time that trained on new data, in nanoseconds.")
    ett_pct: Percent
    ett_pct_held: float | None = Field(description="The same of the time held, 0 to 100.")
    ett_pct_per_job: float | None = Field(description="The jobs' mean ETT%, 0 to 100.")
    lost_accelerator_ms: int = Field(
        description="Accelerator-milliseconds that were held and did not train on new data."
    )
    released_accelerator_ms: int = Field(
        description="Accelerator-milliseconds that publishing in the trainer would have held."
    )
    components: list[ComponentShare] = Field(description="They add up to the measured jobs' time.")
    failures: Count
    failures_by_cause: dict[str, int]
    tts_mean_ns: int | None = Field(description="Mean time to start, in nanoseconds.")
    ttr_mean_ns: int | None = Field(description="Mean time to recover, in nanoseconds.")
    recoveries: int = Field(description="Failures after which training advanced again.")


class DagRank(BaseModel):
    """A DAG among those that lost accelerator time."""

    deployment: str
    dag_id: str
    jobs: Count
    measured: Count
    running: Count
    ett_pct: Percent
    lost_accelerator_ms: int
    lost_ns: int = Field(description="Nanoseconds held that did not train on new data.")
    failures: Count
    largest_loss: str | None = Field(description="The component that took most of it.")
    owner: str | None = Field(description="Who owns that component.")


class DagRanking(BaseModel):
    """DAGs, those that lost most first."""

    period: Days
    total: int = Field(description="How many DAGs there are.")
    dags: list[DagRank]


class FleetDay(BaseModel):
    """The jobs that ended on a day."""

    day: str = Field(description="ISO 8601, in the period's time zone.")
    jobs: Count
    measured: int = Field(description="Jobs with an ETT%.")
    attempts: Count
    failures: Count
    ett_pct: Percent
    ett_pct_held: float | None = Field(description="The same of the time held, 0 to 100.")
    ett_pct_per_job: float | None = Field(description="The jobs' mean ETT%, 0 to 100.")
    held_accelerator_ms: int
    lost_accelerator_ms: int = Field(description="Held, and not trained on new data.")
    accelerator_ms: dict[str, int] = Field(
        description="Accelerator-milliseconds by component, from submission: held or not."
    )


class FleetDays(BaseModel):
    """The days of a period on which a job ended, in order."""

    period: Days
    days: list[FleetDay]


class ComponentInfo(BaseModel):
    """A component as configured."""

    component: str
    owner: str
    phases: list[str]


class Components(BaseModel):
    """The components in the order in which they are shown."""

    components: list[ComponentInfo]


class Health(BaseModel):
    """The API answers and so does its database."""

    status: str
    version: str
    revision: str = Field(description="Of the database.")
    database: str = Field(description="sqlite or postgresql.")


def answer(model: BaseModel) -> Response:
    """Return a model as it is told."""
    return Response(model.model_dump_json(), media_type="application/json")
