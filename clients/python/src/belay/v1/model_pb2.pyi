from belay.v1 import options_pb2 as _options_pb2
from google.api import field_behavior_pb2 as _field_behavior_pb2
from google.api import resource_pb2 as _resource_pb2
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Model(_message.Message):
    __slots__ = ("name", "api", "base_url", "served_model", "window_tokens", "max_output_tokens", "tool_calls", "price", "local", "unavailable_reason")
    class Api(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        API_UNSPECIFIED: _ClassVar[Model.Api]
        API_CHAT: _ClassVar[Model.Api]
        API_RESPONSES: _ClassVar[Model.Api]
        API_MESSAGES: _ClassVar[Model.Api]
    API_UNSPECIFIED: Model.Api
    API_CHAT: Model.Api
    API_RESPONSES: Model.Api
    API_MESSAGES: Model.Api
    class ToolCalls(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        TOOL_CALLS_UNSPECIFIED: _ClassVar[Model.ToolCalls]
        TOOL_CALLS_NATIVE: _ClassVar[Model.ToolCalls]
        TOOL_CALLS_CONSTRAINED: _ClassVar[Model.ToolCalls]
    TOOL_CALLS_UNSPECIFIED: Model.ToolCalls
    TOOL_CALLS_NATIVE: Model.ToolCalls
    TOOL_CALLS_CONSTRAINED: Model.ToolCalls
    class Price(_message.Message):
        __slots__ = ("input_micros", "cached_input_micros", "output_micros")
        INPUT_MICROS_FIELD_NUMBER: _ClassVar[int]
        CACHED_INPUT_MICROS_FIELD_NUMBER: _ClassVar[int]
        OUTPUT_MICROS_FIELD_NUMBER: _ClassVar[int]
        input_micros: int
        cached_input_micros: int
        output_micros: int
        def __init__(self, input_micros: _Optional[int] = ..., cached_input_micros: _Optional[int] = ..., output_micros: _Optional[int] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    API_FIELD_NUMBER: _ClassVar[int]
    BASE_URL_FIELD_NUMBER: _ClassVar[int]
    SERVED_MODEL_FIELD_NUMBER: _ClassVar[int]
    WINDOW_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    PRICE_FIELD_NUMBER: _ClassVar[int]
    LOCAL_FIELD_NUMBER: _ClassVar[int]
    UNAVAILABLE_REASON_FIELD_NUMBER: _ClassVar[int]
    name: str
    api: Model.Api
    base_url: str
    served_model: str
    window_tokens: int
    max_output_tokens: int
    tool_calls: Model.ToolCalls
    price: Model.Price
    local: bool
    unavailable_reason: str
    def __init__(self, name: _Optional[str] = ..., api: _Optional[_Union[Model.Api, str]] = ..., base_url: _Optional[str] = ..., served_model: _Optional[str] = ..., window_tokens: _Optional[int] = ..., max_output_tokens: _Optional[int] = ..., tool_calls: _Optional[_Union[Model.ToolCalls, str]] = ..., price: _Optional[_Union[Model.Price, _Mapping]] = ..., local: bool = ..., unavailable_reason: _Optional[str] = ...) -> None: ...

class ModelUsage(_message.Message):
    __slots__ = ("input_tokens", "cached_input_tokens", "output_tokens", "reasoning_tokens", "cost_micros")
    INPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_INPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    REASONING_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COST_MICROS_FIELD_NUMBER: _ClassVar[int]
    input_tokens: int
    cached_input_tokens: int
    output_tokens: int
    reasoning_tokens: int
    cost_micros: int
    def __init__(self, input_tokens: _Optional[int] = ..., cached_input_tokens: _Optional[int] = ..., output_tokens: _Optional[int] = ..., reasoning_tokens: _Optional[int] = ..., cost_micros: _Optional[int] = ...) -> None: ...

class ModelCheck(_message.Message):
    __slots__ = ("check", "state", "message", "advice")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATE_UNSPECIFIED: _ClassVar[ModelCheck.State]
        STATE_PASSED: _ClassVar[ModelCheck.State]
        STATE_WARNING: _ClassVar[ModelCheck.State]
        STATE_FAILED: _ClassVar[ModelCheck.State]
        STATE_SKIPPED: _ClassVar[ModelCheck.State]
    STATE_UNSPECIFIED: ModelCheck.State
    STATE_PASSED: ModelCheck.State
    STATE_WARNING: ModelCheck.State
    STATE_FAILED: ModelCheck.State
    STATE_SKIPPED: ModelCheck.State
    CHECK_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ADVICE_FIELD_NUMBER: _ClassVar[int]
    check: str
    state: ModelCheck.State
    message: str
    advice: str
    def __init__(self, check: _Optional[str] = ..., state: _Optional[_Union[ModelCheck.State, str]] = ..., message: _Optional[str] = ..., advice: _Optional[str] = ...) -> None: ...
