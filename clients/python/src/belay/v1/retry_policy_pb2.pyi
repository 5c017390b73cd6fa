import datetime

from google.api import field_behavior_pb2 as _field_behavior_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RetryPolicy(_message.Message):
    __slots__ = ("max_attempts", "backoff", "exponential", "rate_limit_backoff", "never_on_rate_limit", "by_output", "queue_on_rate_limit")
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_FIELD_NUMBER: _ClassVar[int]
    EXPONENTIAL_FIELD_NUMBER: _ClassVar[int]
    RATE_LIMIT_BACKOFF_FIELD_NUMBER: _ClassVar[int]
    NEVER_ON_RATE_LIMIT_FIELD_NUMBER: _ClassVar[int]
    BY_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ON_RATE_LIMIT_FIELD_NUMBER: _ClassVar[int]
    max_attempts: int
    backoff: _containers.RepeatedCompositeFieldContainer[_duration_pb2.Duration]
    exponential: ExponentialBackoff
    rate_limit_backoff: _containers.RepeatedCompositeFieldContainer[_duration_pb2.Duration]
    never_on_rate_limit: bool
    by_output: bool
    queue_on_rate_limit: bool
    def __init__(self, max_attempts: _Optional[int] = ..., backoff: _Optional[_Iterable[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]]] = ..., exponential: _Optional[_Union[ExponentialBackoff, _Mapping]] = ..., rate_limit_backoff: _Optional[_Iterable[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]]] = ..., never_on_rate_limit: bool = ..., by_output: bool = ..., queue_on_rate_limit: bool = ...) -> None: ...

class ExponentialBackoff(_message.Message):
    __slots__ = ("initial", "factor", "max")
    INITIAL_FIELD_NUMBER: _ClassVar[int]
    FACTOR_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    initial: _duration_pb2.Duration
    factor: float
    max: _duration_pb2.Duration
    def __init__(self, initial: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., factor: _Optional[float] = ..., max: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...
