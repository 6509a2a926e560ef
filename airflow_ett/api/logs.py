"""The job logs that the API holds: the routes behind ``airflow_ett.storage.HttpStorage``.

::

    GET    /logs/{job}/files?folder=         the files of a folder, by name
    GET    /logs/{job}/files/{name}          a file's content
    PUT    /logs/{job}/files/{name}          write it whole; If-None-Match: * makes it exclusively
    DELETE /logs/{job}/files/{name}
    GET    /logs/{job}/events?folder=        JSON lines, a page of them; ETT-Next: where to go on
    POST   /events                           append JSON lines of one job
    GET    /clock
    POST   /tokens/renew

To be included under ``/api/v1`` beside, not below, what asks for a signed-in user.
"""

import time
from collections.abc import Callable
from typing import Annotated
from urllib.parse import quote, unquote

from fastapi import APIRouter, Depends, Header, HTTPException, Query, Request, Response
from pydantic import BaseModel

from airflow_ett.api import ingest
from airflow_ett.api.bodies import unpack
from airflow_ett.api.guard import Backend, Desk, Route, configured
from airflow_ett.api.limits import Limiter
from airflow_ett.api.names import is_storable
from airflow_ett.errors import TokenError
from airflow_ett.storage.access import MOST_BODY, MOST_FILE, may_remove, may_write
from airflow_ett.storage.http import NEXT
from airflow_ett.storage.names import checked_file, checked_folder
from airflow_ett.storage.tokens import Grant, issue
from airflow_ett.store import files, logged

RENEWED_S = 86_400
"""How long after its job's end a token is still renewed."""

CURSOR, HEARTBEATS = "cursor", "nodes/heartbeat-"
_AS_IT_IS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class FileEntry(BaseModel):
    """A file of a folder, and when it was written last, in UTC nanoseconds of the database."""

    name: str
    time_ns: int


class Clock(BaseModel):
    """The time that files get now, in UTC nanoseconds."""

    now_ns: int


class Renewed(BaseModel):
    """A token for the same job and role, which lives as long as the former did."""

    token: str


def router(
    backend: Callable[[], Backend] = configured, limiter: Limiter | None = None
) -> APIRouter:
    """Return the routes. ``backend`` is asked at the first request, and again while it fails."""
    desk = Desk(backend, limiter or Limiter())
    routes = APIRouter(route_class=Route, tags=["job logs"])
    _add_files(routes, desk)
    _add_events(routes, desk)
    _add_rest(routes, desk)
    return routes


def _add_files(routes: APIRouter, desk: Desk) -> None:
    granted = Annotated[Grant, Depends(desk.grant_of_job)]

    @routes.get("/logs/{job}/files")
    async def list_files(grant: granted, folder: str = "") -> list[FileEntry]:
        """List the files right in a folder, by name."""
        _checked(checked_folder, folder)
        found = await desk.run(lambda backend: files.entries(backend.store, grant.job, folder))
        return [FileEntry(name=entry.name, time_ns=entry.time_ns) for entry in found]

    @routes.get("/logs/{job}/files/{name:path}", response_class=Response)
    async def read_file(grant: granted, name: str) -> Response:
        """Return a file's content."""
        _checked(checked_file, name)
        content = await desk.run(lambda backend: files.read(backend.store, grant.job, name))
        if content is None:
            raise HTTPException(404, f"Job {grant.job} has no file {name}.")
        return Response(content, media_type="application/octet-stream", headers=_AS_IT_IS)

    @routes.put("/logs/{job}/files/{name:path}", status_code=204, response_class=Response)
    async def write_file(
        grant: granted,
        name: str,
        request: Request,
        if_none_match: Annotated[str | None, Header()] = None,
    ) -> Response:
        """Write a file whole, or make it for one of several alone."""
        if not may_write(grant.role, _checked(checked_file, name)):
            problem = f"A trainer's token writes nodes/, replies/, .lease/ and cursor, not {name}."
            raise TokenError(problem, forbidden=True)
        if if_none_match not in (None, "*"):
            raise HTTPException(400, "If-None-Match is * or absent.")
        job = grant.job
        async with desk.body(request, MOST_FILE, grant) as content:
            if if_none_match is None:
                await desk.run(lambda backend: _write(backend, job, name, content))
                return Response(status_code=204)
            if await desk.run(lambda backend: files.create(backend.store, job, name, content)):
                return Response(status_code=201)
        raise HTTPException(412, f"Job {grant.job} has a file {name} of another content.")

    @routes.delete("/logs/{job}/files/{name:path}", status_code=204, response_class=Response)
    async def remove_file(grant: granted, name: str) -> Response:
        """Remove a file; nothing happens where there is none."""
        _checked(checked_file, name)
        if not may_remove(grant.role):
            raise TokenError("A trainer's token removes no files.", forbidden=True)
        await desk.run(lambda backend: files.remove(backend.store, grant.job, name))
        return Response(status_code=204)


def _checked(check: Callable[[str], str], name: str) -> str:
    try:
        return check(name)
    except ValueError as error:
        raise HTTPException(422, str(error)) from None


def _write(backend: Backend, job: str, name: str, content: bytes) -> None:
    files.write(backend.store, job, name, content)
    if name == CURSOR or name.startswith(HEARTBEATS):
        backend.appender.refresh(job)


def _add_events(routes: APIRouter, desk: Desk) -> None:
    @routes.get("/logs/{job}/events", response_class=Response)
    async def read_events(
        grant: Annotated[Grant, Depends(desk.grant_of_job)],
        folder: Annotated[str, Query(pattern="^(launcher|nodes)$")],
        submission: Annotated[int | None, Query(ge=0, lt=2**63)] = None,
        after: Annotated[str | None, Query(max_length=2000)] = None,
    ) -> Response:
        """Return a page of events as JSON lines; ``ETT-Next`` tells ``after`` for the next one."""
        place = None if after is None else _place(after)
        page = await desk.run(
            lambda backend: logged.page(
                backend.store, grant.job, folder, submission=submission, after=place
            )
        )
        headers = dict(_AS_IT_IS)
        if page.last is not None:
            headers[NEXT] = f"{page.last.seq}.{quote(page.last.writer, safe='')}"
        return Response(page.lines, media_type="application/jsonl", headers=headers)

    @routes.post("/events")
    async def append_events(
        grant: Annotated[Grant, Depends(desk.grant)],
        request: Request,
        content_encoding: Annotated[str | None, Header()] = None,
    ) -> ingest.Appended:
        """Append JSON lines to the log of the token's job; good ones also where others are bad."""
        async with desk.body(request, MOST_BODY, grant) as body:

            def append(backend: Backend) -> ingest.Appended:
                lines = ingest.read_lines(unpack(body, content_encoding, MOST_BODY), grant)
                return ingest.append(backend.appender, grant.job, lines)

            return await desk.run(append)


def _place(after: str) -> logged.Place:
    number, _, quoted = after.partition(".")
    seq = int(number) if number.isascii() and number.isdecimal() else -1
    writer = unquote(quoted)
    if not (0 <= seq < 2**63 and writer and is_storable(writer)):
        raise HTTPException(422, f"after is what {NEXT} told.")
    return logged.Place(writer, seq)


def _add_rest(routes: APIRouter, desk: Desk) -> None:
    granted = Annotated[Grant, Depends(desk.grant)]

    @routes.get("/clock")
    async def read_clock(grant: granted) -> Clock:
        """Return the time of the place."""
        return Clock(now_ns=await desk.run(lambda backend: files.now_ns(backend.store)))

    @routes.post("/tokens/renew")
    async def renew_token(grant: granted) -> Renewed:
        """Return a token that lives on, for a job that has not ended a day ago."""

        def renew(backend: Backend) -> str:
            ended_ns = files.ended_ns(backend.store, grant.job)
            if ended_ns is not None and time.time() > ended_ns / 1e9 + RENEWED_S:
                problem = f"Job {grant.job} ended more than a day ago: its token is not renewed."
                raise TokenError(problem, forbidden=True)
            return issue(backend.secret, grant.job, grant.role, grant.life_s)

        return Renewed(token=await desk.run(renew))
