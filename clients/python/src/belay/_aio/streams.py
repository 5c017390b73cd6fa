"""Streams that reconnect automatically."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from belay._aio.transport import AsyncMessageStream, AsyncTransport
from belay._calls import Reconnection, silence
from belay._watching import ExecutionWatch, Gap
from belay.errors import BelayError, UsageError
from belay.models import Event, ExecutionUpdate

T = TypeVar("T")


class AsyncWatchStream(Generic[T]):
    """An iterator over a watch. It reconnects at its cursor when the connection is lost, for as long as `reconnect_for` of the client allows without a
    message; then it raises `UnavailableError`, and a new watch with `after=stream.cursor` continues.

    One task or thread reads it. `close` ends it, from anywhere; it is a context manager too.
    """

    def __init__(self, transport: AsyncTransport, method: str, watch: Any) -> None:
        self._transport = transport
        self._method = method
        self._watch = watch
        self._stream: AsyncMessageStream | None = None
        self._reconnection: Reconnection | None = None
        self._is_closed = False
        self._is_reading = False

    @property
    def cursor(self) -> str:
        """The position after what has been read, which `after` takes; empty before the first message."""
        cursor: str = self._watch.cursor
        return cursor

    def __aiter__(self) -> AsyncWatchStream[T]:
        return self

    async def __anext__(self) -> T:
        if self._is_reading:
            raise UsageError("Another task or thread is reading this stream: open one for each.")
        self._is_reading = True
        try:
            item = await self._next()
        finally:
            self._is_reading = False
        if item is None:
            await self.aclose()
            raise StopAsyncIteration
        return item

    async def aclose(self) -> None:
        """Ends the stream; the iteration stops."""
        self._is_closed = True
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.cancel()

    async def __aenter__(self) -> AsyncWatchStream[T]:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __del__(self) -> None:
        stream = getattr(self, "_stream", None)
        if stream is not None:
            try:
                stream.cancel()
            except Exception:  # noqa: BLE001 - the interpreter or the event loop may be gone
                pass

    async def _next(self) -> T | None:
        reconnection = self._reconnection = self._reconnection or Reconnection(self._transport.settings.reconnect_for)
        while not self._is_closed:
            error: BelayError | None = None
            try:
                if self._stream is None:
                    if (restart := self._restart()) is not None:
                        return restart
                    self._stream = await self._transport.open(self._method, self._watch.request(), silence(self._transport.settings.heartbeat))
                message = await self._stream.read()
                if message is not None:
                    reconnection.contact()
                    item = self._take(message)
                    if item is not None:
                        return item
                    continue
                if self._watch.is_complete():
                    return None
            except BelayError as failure:
                error = failure
            except Gap:
                pass
            stream, self._stream = self._stream, None
            if stream is not None:
                stream.cancel()
            if self._is_closed:
                return None
            delay = reconnection.delay_after(error)
            if delay is None:
                self._is_closed = True
                raise error if error is not None else self._cut()
            await self._transport.sleep(delay)
        return None

    def _cut(self) -> BelayError:
        from belay.errors import UnavailableError

        message = "The server ends the watch again and again, although it is not complete."
        return UnavailableError(message, reason="SERVER_UNREACHABLE", code="UNAVAILABLE")

    def _restart(self) -> T | None:
        """Returns the item that says that a new connection starts from the beginning; None for most watches."""
        return None

    def _take(self, message: Any) -> T | None:
        item: T | None = self._watch.take(message)
        return item


class AsyncEventStream(AsyncWatchStream[Event]):
    """The events of an execution, each once and in order. It ends after the last event of an execution that has ended."""

    def __init__(self, transport: AsyncTransport, watch: ExecutionWatch) -> None:
        super().__init__(transport, "ExecutorService/WatchExecution", watch)


class AsyncExecutionUpdates(AsyncWatchStream[ExecutionUpdate]):
    """The executions of a namespace as they change. It does not end."""

    def __init__(self, transport: AsyncTransport, watch: Any) -> None:
        super().__init__(transport, "ExecutorService/WatchExecutions", watch)

    def _restart(self) -> ExecutionUpdate | None:
        restart: ExecutionUpdate | None = self._watch.restart() if self._watch.interrupted() else None
        return restart
