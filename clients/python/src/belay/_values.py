"""JSON values on their way into and out of `Payload` messages."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from google.protobuf import duration_pb2, timestamp_pb2

from belay.errors import UsageError
from belay.v1 import payload_pb2

#: The largest size of a request that the server reads, in bytes.
MAX_MESSAGE_BYTES = 16 << 20


@dataclass(frozen=True)
class Blob:
    """A reference to a value that is too large to stand in a message (more than 32 KiB). `Execution.read_blob` returns its bytes, and
    `Execution.read_value` the value."""

    #: The digest under a key of the execution: `hmac-sha256:` and 64 hexadecimal digits. It says nothing about the content.
    digest: str
    #: How many bytes it has.
    size_bytes: int
    #: The media type of its content: `application/json`.
    media_type: str
    #: Whether secrets in it are hidden.
    redacted: bool

    @property
    def digits(self) -> str:
        """The hexadecimal digits of the digest, which are the last part of the blob's name."""
        return self.digest.rpartition(":")[2]


def to_json(value: Any, field: str) -> str:
    """Returns a value as JSON text; `field` is named in the error when it is not a JSON value."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain)
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UsageError(f"`{field}` has a text with half of a surrogate pair, which is not Unicode text.", field=field) from error
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"`{field}` is not a JSON value: {error}. Use dict, list, str, int, float, bool or None.", field=field) from error
    return text


def _plain(value: Any) -> Any:
    """Turns what the plan builder makes into plain values."""
    if hasattr(value, "__belay_json__"):
        return value.__belay_json__()
    raise TypeError(f"{type(value).__name__} is not a JSON type")


def to_payload(value: Any, field: str) -> payload_pb2.Payload:
    """Returns a value as an inline payload."""
    return payload_pb2.Payload(json=to_json(value, field))


def from_payload(message: Any, field: str) -> Any:
    """Returns the value of a payload field of a message: a JSON value, a `Blob`, or None when the field is unset."""
    if not message.HasField(field):
        return None
    payload = getattr(message, field)
    if payload.WhichOneof("content") == "blob":
        blob = payload.blob
        return Blob(blob.digest, blob.size_bytes, blob.media_type, blob.redacted)
    return json.loads(payload.json) if payload.json else None


def to_time(message: Any, field: str) -> datetime | None:
    """Returns a timestamp field as a time in UTC, or None when it is unset."""
    if not message.HasField(field):
        return None
    stamp = getattr(message, field)
    return datetime.fromtimestamp(stamp.seconds, timezone.utc) + timedelta(microseconds=stamp.nanos // 1000)


def to_seconds(message: Any, field: str) -> float | None:
    """Returns a duration field in seconds, or None when it is unset."""
    if not message.HasField(field):
        return None
    duration = getattr(message, field)
    return float(duration.seconds) + float(duration.nanos) / 1e9


def to_timestamp(time: datetime, field: str) -> timestamp_pb2.Timestamp:
    """Returns a time as a timestamp; a time without a zone is refused."""
    if not isinstance(time, datetime) or time.tzinfo is None:
        raise UsageError(f"`{field}` is a time with a zone, such as datetime.now(timezone.utc).", field=field)
    stamp = timestamp_pb2.Timestamp()
    stamp.FromDatetime(time.astimezone(timezone.utc).replace(tzinfo=None))
    return stamp


def to_duration(seconds: float, field: str) -> duration_pb2.Duration:
    """Returns a number of seconds as a duration."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds < 315_576_000_000:
        raise UsageError(f"`{field}` is a number of seconds, 0 or more.", field=field)
    nanos = round(seconds * 1e9)
    return duration_pb2.Duration(seconds=nanos // 1_000_000_000, nanos=nanos % 1_000_000_000)


def enum_word(enum: Any, number: int, prefix: str) -> str:
    """Returns the word of an enum's value without its prefix; the number as text when a newer server sends an unknown one."""
    value = enum.DESCRIPTOR.values_by_number.get(number)
    if value is None:
        return str(number)
    word: str = value.name.removeprefix(prefix)
    return "" if word == "UNSPECIFIED" else word


def enum_number(enum: Any, word: str, prefix: str, field: str) -> Any:
    """Returns the value of an enum by its word, in any case, with or without its prefix."""
    if isinstance(word, str):
        value = enum.DESCRIPTOR.values_by_name.get(prefix + word.upper().removeprefix(prefix))
        if value is not None and value.number != 0:
            return value.number
    words = ", ".join(value.name.removeprefix(prefix) for value in enum.DESCRIPTOR.values if value.number != 0)
    raise UsageError(f"`{field}` is {word!r}, and has to be one of {words}.", field=field)
