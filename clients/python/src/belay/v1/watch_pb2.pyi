import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WatchReset(_message.Message):
    __slots__ = ("reason",)
    class Reason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        REASON_UNSPECIFIED: _ClassVar[WatchReset.Reason]
        REASON_LOST: _ClassVar[WatchReset.Reason]
        REASON_TOO_OLD: _ClassVar[WatchReset.Reason]
    REASON_UNSPECIFIED: WatchReset.Reason
    REASON_LOST: WatchReset.Reason
    REASON_TOO_OLD: WatchReset.Reason
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: WatchReset.Reason
    def __init__(self, reason: _Optional[_Union[WatchReset.Reason, str]] = ...) -> None: ...

class WatchHeartbeat(_message.Message):
    __slots__ = ("server_time",)
    SERVER_TIME_FIELD_NUMBER: _ClassVar[int]
    server_time: _timestamp_pb2.Timestamp
    def __init__(self, server_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class WatchListed(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
