from belay.v1 import model_pb2 as _model_pb2
from belay.v1 import options_pb2 as _options_pb2
from google.api import field_behavior_pb2 as _field_behavior_pb2
from google.api import resource_pb2 as _resource_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ListModelsRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListModelsResponse(_message.Message):
    __slots__ = ("models", "next_page_token")
    MODELS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedCompositeFieldContainer[_model_pb2.Model]
    next_page_token: str
    def __init__(self, models: _Optional[_Iterable[_Union[_model_pb2.Model, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class CheckModelRequest(_message.Message):
    __slots__ = ("name", "fill_window")
    NAME_FIELD_NUMBER: _ClassVar[int]
    FILL_WINDOW_FIELD_NUMBER: _ClassVar[int]
    name: str
    fill_window: bool
    def __init__(self, name: _Optional[str] = ..., fill_window: bool = ...) -> None: ...

class CheckModelResponse(_message.Message):
    __slots__ = ("check", "usage")
    CHECK_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    check: _model_pb2.ModelCheck
    usage: _model_pb2.ModelUsage
    def __init__(self, check: _Optional[_Union[_model_pb2.ModelCheck, _Mapping]] = ..., usage: _Optional[_Union[_model_pb2.ModelUsage, _Mapping]] = ...) -> None: ...
