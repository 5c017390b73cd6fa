"""Decisions about calls that the blocking and the asyncio client share: metadata, timeouts, and what is repeated when."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import Any

from google.protobuf import descriptor_pb2, message_factory

from belay._values import MAX_MESSAGE_BYTES
from belay.errors import (
    BelayError,
    CallCancelledError,
    DeadlineExceededError,
    InternalError,
    ResourceExhaustedError,
    UnavailableError,
    UsageError,
)
from belay.settings import CONTRACT_REVISION, Address, Settings
from belay.v1 import (
    approval_service_pb2,
    executor_service_pb2,
    model_service_pb2,
    policy_service_pb2,
    schedule_service_pb2,
)

#: Reasons with the code UNAVAILABLE that no repetition helps; docs/errors.md has them as not retryable.
PERMANENT = frozenset({"FENCED", "STORE_CORRUPT", "STORE_GONE", "STORE_BEHIND", "STORE_NEWER", "STORE_OLDER"})
#: After how many seconds an open stream is replaced by one that continues at its cursor, so that every call has a deadline.
STREAM_TIMEOUT = 600.0
#: How many heartbeats may be missing before a connection counts as lost, and the most seconds that are added for a slow machine.
MISSING_HEARTBEATS, SILENCE_MARGIN = 2.0, 5.0

_FIRST_DELAY, _LONGEST_DELAY = 0.05, 2.0
_FILES = (executor_service_pb2, approval_service_pb2, policy_service_pb2, model_service_pb2, schedule_service_pb2)


@dataclass(frozen=True)
class Method:
    """A method of the contract."""

    service: str
    path: str
    request: Any
    response: Any
    is_streaming: bool
    #: Whether it changes nothing, as the contract says.
    is_read: bool


def _methods() -> dict[str, Method]:
    found = {}
    for file in _FILES:
        for service in file.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                level = method.GetOptions().idempotency_level
                found[f"{service.name}/{method.name}"] = Method(
                    service.name,
                    f"/{service.full_name}/{method.name}",
                    message_factory.GetMessageClass(method.input_type),
                    message_factory.GetMessageClass(method.output_type),
                    method.server_streaming,
                    level == descriptor_pb2.MethodOptions.NO_SIDE_EFFECTS,
                )
    return found


#: Every method of the contract, by `Service/Method`.
METHODS: dict[str, Method] = _methods()


def is_repeatable(method: Method, request: Any) -> bool:
    """Whether a call may be made again without knowing what became of the first: it reads, or its key makes the repetition the same request."""
    return method.is_read or bool(getattr(request, "request_id", ""))


def check_size(request: Any) -> None:
    """Refuses a request that no server reads."""
    size = request.ByteSize()
    if size > MAX_MESSAGE_BYTES:
        message = f"The request has {size} bytes, and at most {MAX_MESSAGE_BYTES} are sent: put large content into files and pass their paths."
        raise UsageError(message, reason="MESSAGE_TOO_LARGE")


def metadata(settings: Settings) -> tuple[tuple[str, str], ...]:
    """Returns the metadata of a call: who asks, the contract's revision, and the caller's place in its trace."""
    entries = [("belay-contract", str(CONTRACT_REVISION))]
    if settings.token is not None:
        entries.append(("authorization", f"Bearer {settings.token}"))
    entries += _trace_context().items()
    return tuple(entries)


def _trace_context() -> dict[str, str]:
    try:
        from opentelemetry import propagate
    except ImportError:
        return {}
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return {name: carrier[name] for name in ("traceparent", "tracestate") if carrier.get(name)}


def channel_options(address: Address, settings: Settings) -> list[tuple[str, Any]]:
    """Returns the options of a gRPC channel."""
    from belay import __version__

    options: list[tuple[str, Any]] = [
        ("grpc.primary_user_agent", f"belay-python/{__version__}"),
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ("grpc.keepalive_time_ms", 20_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 1_000),
        ("grpc.max_reconnect_backoff_ms", 2_000),
        # The client repeats calls itself, because only it knows which ones are safe.
        ("grpc.enable_retries", 0),
        # Clients with different tokens or certificates share no connection.
        ("grpc.use_local_subchannel_pool", 1),
    ]
    if address.is_unix:
        # The path of a socket is no authority by RFC 3986.
        options.append(("grpc.default_authority", "localhost"))
    if address.is_local:
        options.append(("grpc.enable_http_proxy", 0))
    if settings.tls is not None and settings.tls.server_name is not None:
        options.append(("grpc.ssl_target_name_override", settings.tls.server_name))
    return options


class Attempts:
    """The attempts at one call: how long the next one may take, and after which delay it follows."""

    def __init__(self, timeout: float, retry_for: float, repeatable: bool) -> None:
        now = time.monotonic()
        self._end = now + timeout
        self._last_retry = min(self._end, now + retry_for)
        self._repeatable = repeatable
        self._delay = _FIRST_DELAY

    def remaining(self) -> float:
        """Returns the seconds that are left for the next attempt; never less than a millisecond."""
        return max(self._end - time.monotonic(), 0.001)

    def delay_after(self, error: BelayError) -> float | None:
        """Returns the seconds after which the call is made again, or None when it is not."""
        refused = isinstance(error, ResourceExhaustedError) and error.retry_after is not None
        lost = isinstance(error, UnavailableError) and error.reason not in PERMANENT
        if not refused and not (lost and self._repeatable):
            return None
        delay = self._delay * random.uniform(0.5, 1.0)
        self._delay = min(self._delay * 2, _LONGEST_DELAY)
        delay = max(delay, error.retry_after or 0.0)
        return delay if time.monotonic() + delay < self._last_retry else None


class Reconnection:
    """The delays between the connections of one stream. A message starts them anew."""

    def __init__(self, reconnect_for: float) -> None:
        self._for = reconnect_for
        self._last_contact = time.monotonic()
        self._delay = _FIRST_DELAY

    def contact(self) -> None:
        """A message has come."""
        self._last_contact = time.monotonic()
        self._delay = _FIRST_DELAY

    def delay_after(self, error: BelayError | None) -> float | None:
        """Returns the seconds after which the stream is opened again, or None when the error is final. None as the error means that the stream was cut."""
        if error is not None and not _is_interruption(error):
            return None
        delay = self._delay * random.uniform(0.5, 1.0)
        self._delay = min(self._delay * 2, _LONGEST_DELAY)
        if error is not None:
            delay = max(delay, error.retry_after or 0.0)
        return delay if time.monotonic() + delay - self._last_contact < self._for else None


def _is_interruption(error: BelayError) -> bool:
    if isinstance(error, UnavailableError):
        return error.reason not in PERMANENT
    if isinstance(error, ResourceExhaustedError):
        return error.retry_after is not None
    # Without a reason of Belay's these come from the connection or a proxy: a reset stream, a deadline of an open stream.
    return isinstance(error, (CallCancelledError, DeadlineExceededError, InternalError)) and error.reason == error.code


def silence(heartbeat: float) -> float:
    """Returns after how many seconds without a message a stream with this heartbeat counts as lost."""
    return heartbeat * MISSING_HEARTBEATS + min(heartbeat * 10, SILENCE_MARGIN)


def silent_error(target: str, seconds: float) -> UnavailableError:
    """Returns the error for a stream on which nothing came, not even a heartbeat."""
    message = f"Nothing has come from the server at {target} for {seconds:g} s, not even a heartbeat."
    return UnavailableError(message, reason="SERVER_UNREACHABLE", code="UNAVAILABLE")
