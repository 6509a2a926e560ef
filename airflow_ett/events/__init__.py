"""The event record, its codec, the append-only log and the cursor file. Standard library only."""

from airflow_ett.events.cursor import CursorFile, CursorRecord, decode_cursor, read_cursor
from airflow_ett.events.job import JobContext, JobKey, agent_writer, slug, trainer_writer
from airflow_ett.events.log import BadLine, Chunk, LogWriter, decode_log, read_log
from airflow_ett.events.record import AttemptId, Event, decode, encode
from airflow_ett.events.rundir import RunDir
from airflow_ett.events.vocabulary import (
    RELAUNCH_CAUSES,
    SCHEMA_VERSION,
    USER_CAUSES,
    Cause,
    JobState,
    Kind,
    Layer,
)

__all__ = [
    "RELAUNCH_CAUSES",
    "SCHEMA_VERSION",
    "USER_CAUSES",
    "AttemptId",
    "BadLine",
    "Cause",
    "Chunk",
    "CursorFile",
    "CursorRecord",
    "Event",
    "JobContext",
    "JobKey",
    "JobState",
    "Kind",
    "Layer",
    "LogWriter",
    "RunDir",
    "agent_writer",
    "decode",
    "decode_cursor",
    "decode_log",
    "encode",
    "read_cursor",
    "read_log",
    "slug",
    "trainer_writer",
]
