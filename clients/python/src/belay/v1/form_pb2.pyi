from belay.v1 import options_pb2 as _options_pb2
from google.api import field_behavior_pb2 as _field_behavior_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class Form(_message.Message):
    __slots__ = ("title", "description", "schema")
    TITLE_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    title: str
    description: str
    schema: str
    def __init__(self, title: _Optional[str] = ..., description: _Optional[str] = ..., schema: _Optional[str] = ...) -> None: ...
