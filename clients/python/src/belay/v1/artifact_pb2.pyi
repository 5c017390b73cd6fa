import datetime

from belay.v1 import effect_pb2 as _effect_pb2
from belay.v1 import options_pb2 as _options_pb2
from belay.v1 import receipt_pb2 as _receipt_pb2
from google.api import field_behavior_pb2 as _field_behavior_pb2
from google.api import resource_pb2 as _resource_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Artifact(_message.Message):
    __slots__ = ("name", "kind", "step_id", "attempt", "tool_call", "sequence", "create_time", "media_type", "size_bytes", "digest", "derives_from", "path", "change", "file_type", "mode")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[Artifact.Kind]
        KIND_OUTPUT: _ClassVar[Artifact.Kind]
        KIND_FILE: _ClassVar[Artifact.Kind]
    KIND_UNSPECIFIED: Artifact.Kind
    KIND_OUTPUT: Artifact.Kind
    KIND_FILE: Artifact.Kind
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    MEDIA_TYPE_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    DERIVES_FROM_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    FILE_TYPE_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    name: str
    kind: Artifact.Kind
    step_id: str
    attempt: int
    tool_call: str
    sequence: int
    create_time: _timestamp_pb2.Timestamp
    media_type: str
    size_bytes: int
    digest: str
    derives_from: _containers.RepeatedScalarFieldContainer[str]
    path: str
    change: _effect_pb2.PathChange.Kind
    file_type: _receipt_pb2.CommittedFile.Type
    mode: int
    def __init__(self, name: _Optional[str] = ..., kind: _Optional[_Union[Artifact.Kind, str]] = ..., step_id: _Optional[str] = ..., attempt: _Optional[int] = ..., tool_call: _Optional[str] = ..., sequence: _Optional[int] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., media_type: _Optional[str] = ..., size_bytes: _Optional[int] = ..., digest: _Optional[str] = ..., derives_from: _Optional[_Iterable[str]] = ..., path: _Optional[str] = ..., change: _Optional[_Union[_effect_pb2.PathChange.Kind, str]] = ..., file_type: _Optional[_Union[_receipt_pb2.CommittedFile.Type, str]] = ..., mode: _Optional[int] = ...) -> None: ...
