import datetime

from belay.v1 import options_pb2 as _options_pb2
from google.api import field_behavior_pb2 as _field_behavior_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Payload(_message.Message):
    __slots__ = ("json", "blob")
    JSON_FIELD_NUMBER: _ClassVar[int]
    BLOB_FIELD_NUMBER: _ClassVar[int]
    json: str
    blob: BlobRef
    def __init__(self, json: _Optional[str] = ..., blob: _Optional[_Union[BlobRef, _Mapping]] = ...) -> None: ...

class BlobRef(_message.Message):
    __slots__ = ("digest", "size_bytes", "media_type", "redacted")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEDIA_TYPE_FIELD_NUMBER: _ClassVar[int]
    REDACTED_FIELD_NUMBER: _ClassVar[int]
    digest: str
    size_bytes: int
    media_type: str
    redacted: bool
    def __init__(self, digest: _Optional[str] = ..., size_bytes: _Optional[int] = ..., media_type: _Optional[str] = ..., redacted: bool = ...) -> None: ...

class CachedResult(_message.Message):
    __slots__ = ("execution", "complete_time", "age")
    EXECUTION_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_TIME_FIELD_NUMBER: _ClassVar[int]
    AGE_FIELD_NUMBER: _ClassVar[int]
    execution: str
    complete_time: _timestamp_pb2.Timestamp
    age: _duration_pb2.Duration
    def __init__(self, execution: _Optional[str] = ..., complete_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., age: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...
