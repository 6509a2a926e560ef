"""Requests' bodies, read within bounds: their headers may lie."""

import asyncio
import contextlib
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Hashable

from fastapi import HTTPException, Request
from starlette.requests import ClientDisconnect

from airflow_ett.api.limits import BODY_S, MOST_HELD, MOST_HELD_EACH

_GZIP = 31


class Room:
    """Memory for the bodies of requests that are under way; a bearer gets a part of it at most.

    It belongs to one event loop.
    """

    def __init__(
        self, most: int = MOST_HELD, most_each: int = MOST_HELD_EACH, within_s: float = BODY_S
    ) -> None:
        self._most = most
        self._most_each = most_each
        self._within_s = within_s
        self._held: Counter[Hashable] = Counter()

    @contextlib.asynccontextmanager
    async def body(self, request: Request, most: int, bearer: Hashable) -> AsyncIterator[bytes]:
        """Hold the body as it was sent, ``most`` bytes of it at most, while it is worked on.

        Raises ``HTTPException`` 413 where it is longer, 408 where it is too slow, 503 where others'
        bodies leave no room for it.
        """
        told = request.headers.get("Content-Length", "")
        if told.isdecimal() and int(told) > most:
            raise too_long(most)
        chunks: list[bytes] = []
        try:
            await self._read(request, most, bearer, chunks)
            yield b"".join(chunks)
        finally:
            self._held[bearer] -= sum(map(len, chunks))
            self._held += Counter()  # without those that hold nothing

    async def _read(
        self, request: Request, most: int, bearer: Hashable, chunks: list[bytes]
    ) -> None:
        size = 0
        try:
            async with asyncio.timeout(self._within_s):
                async for chunk in request.stream():
                    self._take(bearer, len(chunk))
                    chunks.append(chunk)
                    size += len(chunk)
                    if size > most:
                        raise too_long(most)
        except TimeoutError:
            problem = f"The body was not here within {self._within_s:.0f} s."
            raise HTTPException(408, problem) from None
        except ClientDisconnect:
            raise HTTPException(400, "The connection was closed within the body.") from None

    def _take(self, bearer: Hashable, size: int) -> None:
        if self._held[bearer] + size > self._most_each or self._held.total() + size > self._most:
            problem = "Too much is being sent at once: try again in a second."
            raise HTTPException(503, problem, headers={"Retry-After": "1"})
        self._held[bearer] += size


def unpack(body: bytes, encoding: str | None, most: int) -> bytes:
    """Return the body as it was meant: plain or from gzip, ``most`` bytes of it at most.

    Raises ``HTTPException`` 413 where it is longer, 400 or 415 where it cannot be unpacked.
    """
    coding = (encoding or "identity").lower()
    if coding == "identity":
        return body
    if coding != "gzip":
        raise HTTPException(415, "Content-Encoding is gzip or none.")
    packed = zlib.decompressobj(_GZIP)
    try:
        content = packed.decompress(body, most + 1)
    except zlib.error as error:
        raise HTTPException(400, f"The body is no gzip: {error}") from None
    if len(content) > most:
        raise too_long(most)
    if not packed.eof or packed.unused_data:
        raise HTTPException(400, "The body is no gzip, whole and alone.")
    return content


def too_long(most: int) -> HTTPException:
    """Return the answer to what has more bytes than ``most``."""
    return HTTPException(413, f"More than {most} bytes: send less at once.")
