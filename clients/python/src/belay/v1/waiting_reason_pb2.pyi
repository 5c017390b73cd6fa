import datetime

from belay.v1 import options_pb2 as _options_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WaitingReason(_message.Message):
    __slots__ = ("kind", "begin_time", "until_time", "who", "next_command", "principal")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[WaitingReason.Kind]
        KIND_TIMER: _ClassVar[WaitingReason.Kind]
        KIND_APPROVAL: _ClassVar[WaitingReason.Kind]
        KIND_RESUME: _ClassVar[WaitingReason.Kind]
        KIND_OUTCOME: _ClassVar[WaitingReason.Kind]
        KIND_RUNNER: _ClassVar[WaitingReason.Kind]
        KIND_CALL: _ClassVar[WaitingReason.Kind]
        KIND_WORKSPACE: _ClassVar[WaitingReason.Kind]
        KIND_LIMIT: _ClassVar[WaitingReason.Kind]
        KIND_SIGNAL: _ClassVar[WaitingReason.Kind]
        KIND_TIME: _ClassVar[WaitingReason.Kind]
        KIND_FAULT: _ClassVar[WaitingReason.Kind]
        KIND_FORM: _ClassVar[WaitingReason.Kind]
        KIND_CHILD: _ClassVar[WaitingReason.Kind]
    KIND_UNSPECIFIED: WaitingReason.Kind
    KIND_TIMER: WaitingReason.Kind
    KIND_APPROVAL: WaitingReason.Kind
    KIND_RESUME: WaitingReason.Kind
    KIND_OUTCOME: WaitingReason.Kind
    KIND_RUNNER: WaitingReason.Kind
    KIND_CALL: WaitingReason.Kind
    KIND_WORKSPACE: WaitingReason.Kind
    KIND_LIMIT: WaitingReason.Kind
    KIND_SIGNAL: WaitingReason.Kind
    KIND_TIME: WaitingReason.Kind
    KIND_FAULT: WaitingReason.Kind
    KIND_FORM: WaitingReason.Kind
    KIND_CHILD: WaitingReason.Kind
    KIND_FIELD_NUMBER: _ClassVar[int]
    BEGIN_TIME_FIELD_NUMBER: _ClassVar[int]
    UNTIL_TIME_FIELD_NUMBER: _ClassVar[int]
    WHO_FIELD_NUMBER: _ClassVar[int]
    NEXT_COMMAND_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    kind: WaitingReason.Kind
    begin_time: _timestamp_pb2.Timestamp
    until_time: _timestamp_pb2.Timestamp
    who: str
    next_command: str
    principal: str
    def __init__(self, kind: _Optional[_Union[WaitingReason.Kind, str]] = ..., begin_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., until_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., who: _Optional[str] = ..., next_command: _Optional[str] = ..., principal: _Optional[str] = ...) -> None: ...
