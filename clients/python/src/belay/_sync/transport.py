"""The connection of the blocking client."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import grpc

from belay._calls import METHODS, STREAM_TIMEOUT, Attempts, channel_options, check_size, is_repeatable, metadata, silent_error
from belay.errors import UsageError, decode_rpc_error
from belay.settings import Address, Settings


class Transport:
    """The channels to the services. All threads of a process share them; a child after a fork makes its own."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._lock = threading.Lock()
        self._channels: dict[Address, grpc.Channel] = {}
        # Channels of the parent process: closing them here would use its connection.
        self._inherited: list[grpc.Channel] = []
        self._pid = os.getpid()
        self._is_closed = False

    def call(self, method_name: str, request: Any, timeout: float | None = None, retry_for: float | None = None) -> Any:
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
                return call(request, timeout=attempts.remaining(), metadata=metadata(self.settings))
            except grpc.RpcError as error:
                decoded = decode_rpc_error(error, address.url)
                delay = attempts.delay_after(decoded)
                if delay is None:
                    raise decoded from None
            time.sleep(delay)

    def open(self, method_name: str, request: Any, silence: float) -> MessageStream:
        """Opens a stream of messages that counts as lost after `silence` seconds without one."""
        method = METHODS[method_name]
        address = self.settings.address_of(method.service)
        call = self._channel(address).unary_stream(
            method.path, request_serializer=method.request.SerializeToString, response_deserializer=method.response.FromString
        )
        return MessageStream(call(request, timeout=STREAM_TIMEOUT, metadata=metadata(self.settings)), address, silence)

    def sleep(self, seconds: float) -> None:
        """Waits."""
        time.sleep(seconds)

    def close(self) -> None:
        """Closes the channels; open calls are cancelled."""
        with self._lock:
            self._is_closed = True
            channels, self._channels = list(self._channels.values()), {}
        if self._pid == os.getpid():
            for channel in channels:
                channel.close()

    def _channel(self, address: Address) -> grpc.Channel:
        if self._pid != os.getpid():
            self._after_fork()
        with self._lock:
            if self._is_closed:
                raise UsageError("The client is closed: connect a new one.")
            channel = self._channels.get(address)
            if channel is None:
                options = channel_options(address, self.settings)
                if address.is_encrypted:
                    ca, key, cert = self.settings.tls.pem() if self.settings.tls else (None, None, None)
                    channel = grpc.secure_channel(address.target, grpc.ssl_channel_credentials(ca, key, cert), options)
                else:
                    channel = grpc.insecure_channel(address.target, options)
                self._channels[address] = channel
            return channel

    def _after_fork(self) -> None:
        if os.environ.get("GRPC_ENABLE_FORK_SUPPORT", "1").lower() in ("0", "false", "no"):
            message = (
                "gRPC's fork support is off (GRPC_ENABLE_FORK_SUPPORT), so no call can be made in a process that was forked after the first one: "
                "start the process with `spawn`, or remove the variable."
            )
            raise UsageError(message)
        # The lock may have been held by a thread that does not exist in this process.
        self._lock = threading.Lock()
        self._inherited += self._channels.values()
        self._channels = {}
        self._pid = os.getpid()


class MessageStream:
    """An open stream of messages."""

    def __init__(self, call: Any, address: Address, silence: float) -> None:
        self._call = call
        self._address = address
        self._watchdog = _Watchdog(call, silence)

    def read(self) -> Any:
        """Returns the next message, or None at the end of the stream."""
        self._watchdog.begin()
        try:
            return next(self._call)
        except StopIteration:
            self._watchdog.stop()
            return None
        except grpc.RpcError as error:
            self._watchdog.stop()
            if self._watchdog.has_bitten:
                raise silent_error(self._address.url, self._watchdog.silence) from None
            raise decode_rpc_error(error, self._address.url) from None
        finally:
            self._watchdog.end()

    def cancel(self) -> None:
        """Ends the stream. Any thread may call this."""
        self._watchdog.stop()
        self._call.cancel()


class _Watchdog:
    """Cancels a call on which a read takes longer than a limit. One thread for each open stream, because a blocking read cannot have a timeout."""

    def __init__(self, call: Any, silence: float) -> None:
        self.silence = silence
        self.has_bitten = False
        self._call = call
        self._deadline: float | None = None
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        self._deadline = time.monotonic() + self.silence
        if self._thread is None and not self._stopped.is_set():
            self._thread = threading.Thread(target=self._run, name="belay-watchdog", daemon=True)
            self._thread.start()

    def end(self) -> None:
        self._deadline = None

    def stop(self) -> None:
        self._stopped.set()

    def _run(self) -> None:
        while True:
            deadline = self._deadline
            # Between reads there is nothing to watch, and the next one has all of its time.
            left = self.silence if deadline is None else deadline - time.monotonic()
            if left <= 0:
                self.has_bitten = True
                self._call.cancel()
                return
            if self._stopped.wait(left):
                return
