"""The connection of the asyncio client."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import grpc
import grpc.aio

from belay._calls import METHODS, STREAM_TIMEOUT, Attempts, Method, channel_options, check_size, is_repeatable, metadata, silent_error
from belay.errors import CallCancelledError, UsageError, decode_rpc_error
from belay.settings import Address, Settings


class AsyncTransport:
    """The channels to the services. They belong to the event loop in which the first call is made."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._channels: dict[Address, grpc.aio.Channel] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = os.getpid()
        self._is_closed = False

    async def call(self, method_name: str, request: Any, timeout: float | None = None, retry_for: float | None = None) -> Any:
        """Makes one unary call, again where that is safe, and returns the answer."""
        method = METHODS[method_name]
        address = self.settings.address_of(method.service)
        check_size(request)
        timeout = self.settings.timeout if timeout is None else timeout
        attempts = Attempts(timeout, self.settings.retry_for if retry_for is None else retry_for, is_repeatable(method, request))
        while True:
            call = self._channel(address).unary_unary(
                method.path, request_serializer=method.request.SerializeToString, response_deserializer=method.response.FromString
            )
            try:
                return await _finish(call(request, timeout=attempts.remaining(), metadata=metadata(self.settings)))
            except grpc.aio.AioRpcError as error:
                decoded = decode_rpc_error(error, address.url)
                delay = attempts.delay_after(decoded)
                if delay is None:
                    raise decoded from None
            await asyncio.sleep(delay)

    async def open(self, method_name: str, request: Any, silence: float) -> AsyncMessageStream:
        """Opens a stream of messages that counts as lost after `silence` seconds without one."""
        method = METHODS[method_name]
        address = self.settings.address_of(method.service)
        call = self._channel(address).unary_stream(
            method.path, request_serializer=method.request.SerializeToString, response_deserializer=method.response.FromString
        )
        return AsyncMessageStream(call(request, timeout=STREAM_TIMEOUT, metadata=metadata(self.settings)), address, silence)

    async def sleep(self, seconds: float) -> None:
        """Waits."""
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        """Closes the channels; open calls are cancelled."""
        self._is_closed = True
        channels, self._channels = list(self._channels.values()), {}
        if self._pid == os.getpid():
            for channel in channels:
                await channel.close()

    def _channel(self, address: Address) -> grpc.aio.Channel:
        if self._is_closed:
            raise UsageError("The client is closed: connect a new one.")
        if self._pid != os.getpid():
            raise UsageError("This AsyncClient was connected before a fork: connect a new one in the child.")
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        if self._loop is not loop:
            raise UsageError("This AsyncClient belongs to another event loop: connect one in each loop.")
        channel = self._channels.get(address)
        if channel is None:
            options = channel_options(address, self.settings)
            if address.is_encrypted:
                ca, key, cert = self.settings.tls.pem() if self.settings.tls else (None, None, None)
                channel = grpc.aio.secure_channel(address.target, grpc.ssl_channel_credentials(ca, key, cert), options)
            else:
                channel = grpc.aio.insecure_channel(address.target, options)
            self._channels[address] = channel
        return channel


class AsyncMessageStream:
    """An open stream of messages."""

    def __init__(self, call: Any, address: Address, silence: float) -> None:
        self._call = call
        self._address = address
        self._silence = silence

    async def read(self) -> Any:
        """Returns the next message, or None at the end of the stream."""
        reading = asyncio.ensure_future(self._call.read())
        try:
            await asyncio.wait({reading}, timeout=self._silence)
        except asyncio.CancelledError:
            self._abandon(reading)
            raise
        if not reading.done():
            self._abandon(reading)
            raise silent_error(self._address.url, self._silence)
        try:
            message = reading.result()
        except grpc.aio.AioRpcError as error:
            raise decode_rpc_error(error, self._address.url) from None
        except asyncio.CancelledError:
            # The stream was closed while it was read.
            raise CallCancelledError("The stream was closed.", reason="CANCELLED", code="CANCELLED") from None
        return None if message is grpc.aio.EOF else message

    def _abandon(self, reading: asyncio.Future[Any]) -> None:
        reading.add_done_callback(_forget)
        self._call.cancel()

    def cancel(self) -> None:
        """Ends the stream."""
        self._call.cancel()


async def _finish(call: Any) -> Any:
    """Waits for a unary call. When the task is cancelled the call is, too, and the task: gRPC reports one or the other, depending on the moment."""
    waiting = asyncio.ensure_future(_await(call))
    try:
        await asyncio.wait({waiting})
    except asyncio.CancelledError:
        waiting.add_done_callback(_forget)
        call.cancel()
        raise
    return waiting.result()


async def _await(call: Any) -> Any:
    return await call


def _forget(future: asyncio.Future[Any]) -> None:
    """Takes the result of a future, so that nobody is told that it was never read."""
    if not future.cancelled():
        future.exception()


__all__ = ["AsyncMessageStream", "AsyncTransport", "Method"]
