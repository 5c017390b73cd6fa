import datetime

from belay.v1 import options_pb2 as _options_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RecoveryClass(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RECOVERY_CLASS_UNSPECIFIED: _ClassVar[RecoveryClass]
    RECOVERY_CLASS_READ_ONLY: _ClassVar[RecoveryClass]
    RECOVERY_CLASS_IDEMPOTENT: _ClassVar[RecoveryClass]
    RECOVERY_CLASS_TRANSACTIONAL: _ClassVar[RecoveryClass]
    RECOVERY_CLASS_MANUAL: _ClassVar[RecoveryClass]
RECOVERY_CLASS_UNSPECIFIED: RecoveryClass
RECOVERY_CLASS_READ_ONLY: RecoveryClass
RECOVERY_CLASS_IDEMPOTENT: RecoveryClass
RECOVERY_CLASS_TRANSACTIONAL: RecoveryClass
RECOVERY_CLASS_MANUAL: RecoveryClass

class Tool(_message.Message):
    __slots__ = ("name", "aliases", "description", "parameters_schema", "result_schema", "recovery", "default_timeout", "annotations", "takes_network")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ALIASES_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    RESULT_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    RECOVERY_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    ANNOTATIONS_FIELD_NUMBER: _ClassVar[int]
    TAKES_NETWORK_FIELD_NUMBER: _ClassVar[int]
    name: str
    aliases: _containers.RepeatedScalarFieldContainer[str]
    description: str
    parameters_schema: str
    result_schema: str
    recovery: RecoveryClass
    default_timeout: _duration_pb2.Duration
    annotations: ToolAnnotations
    takes_network: bool
    def __init__(self, name: _Optional[str] = ..., aliases: _Optional[_Iterable[str]] = ..., description: _Optional[str] = ..., parameters_schema: _Optional[str] = ..., result_schema: _Optional[str] = ..., recovery: _Optional[_Union[RecoveryClass, str]] = ..., default_timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., annotations: _Optional[_Union[ToolAnnotations, _Mapping]] = ..., takes_network: bool = ...) -> None: ...

class ToolServer(_message.Message):
    __slots__ = ("name", "identity", "revision", "problem")
    NAME_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    name: str
    identity: str
    revision: str
    problem: str
    def __init__(self, name: _Optional[str] = ..., identity: _Optional[str] = ..., revision: _Optional[str] = ..., problem: _Optional[str] = ...) -> None: ...

class ToolAnnotations(_message.Message):
    __slots__ = ("read_only", "destructive", "idempotent", "open_world", "title")
    READ_ONLY_FIELD_NUMBER: _ClassVar[int]
    DESTRUCTIVE_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENT_FIELD_NUMBER: _ClassVar[int]
    OPEN_WORLD_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    read_only: bool
    destructive: bool
    idempotent: bool
    open_world: bool
    title: str
    def __init__(self, read_only: bool = ..., destructive: bool = ..., idempotent: bool = ..., open_world: bool = ..., title: _Optional[str] = ...) -> None: ...
