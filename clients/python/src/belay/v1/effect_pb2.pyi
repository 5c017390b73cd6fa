from belay.v1 import options_pb2 as _options_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EffectSummary(_message.Message):
    __slots__ = ("created", "modified", "deleted", "changes")
    CREATED_FIELD_NUMBER: _ClassVar[int]
    MODIFIED_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    created: int
    modified: int
    deleted: int
    changes: _containers.RepeatedCompositeFieldContainer[PathChange]
    def __init__(self, created: _Optional[int] = ..., modified: _Optional[int] = ..., deleted: _Optional[int] = ..., changes: _Optional[_Iterable[_Union[PathChange, _Mapping]]] = ...) -> None: ...

class PathChange(_message.Message):
    __slots__ = ("path", "kind", "flags", "index")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[PathChange.Kind]
        KIND_CREATED: _ClassVar[PathChange.Kind]
        KIND_MODIFIED: _ClassVar[PathChange.Kind]
        KIND_DELETED: _ClassVar[PathChange.Kind]
    KIND_UNSPECIFIED: PathChange.Kind
    KIND_CREATED: PathChange.Kind
    KIND_MODIFIED: PathChange.Kind
    KIND_DELETED: PathChange.Kind
    PATH_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    FLAGS_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    path: str
    kind: PathChange.Kind
    flags: _containers.RepeatedScalarFieldContainer[str]
    index: int
    def __init__(self, path: _Optional[str] = ..., kind: _Optional[_Union[PathChange.Kind, str]] = ..., flags: _Optional[_Iterable[str]] = ..., index: _Optional[int] = ...) -> None: ...
