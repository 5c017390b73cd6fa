import datetime

from belay.v1 import options_pb2 as _options_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ErrorClass(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ERROR_CLASS_UNSPECIFIED: _ClassVar[ErrorClass]
    ERROR_CLASS_CRASH: _ClassVar[ErrorClass]
    ERROR_CLASS_RATE_LIMIT: _ClassVar[ErrorClass]
    ERROR_CLASS_FATAL: _ClassVar[ErrorClass]
    ERROR_CLASS_AGENT_UNAVAILABLE: _ClassVar[ErrorClass]
    ERROR_CLASS_TRANSIENT: _ClassVar[ErrorClass]
    ERROR_CLASS_TIMEOUT: _ClassVar[ErrorClass]
    ERROR_CLASS_INVALID_ARGUMENTS: _ClassVar[ErrorClass]
    ERROR_CLASS_INVALID_RESULT: _ClassVar[ErrorClass]
    ERROR_CLASS_SANDBOX_VIOLATION: _ClassVar[ErrorClass]
    ERROR_CLASS_PRECONDITION_FAILED: _ClassVar[ErrorClass]
    ERROR_CLASS_POSTCONDITION_FAILED: _ClassVar[ErrorClass]
    ERROR_CLASS_APPROVAL_DENIED: _ClassVar[ErrorClass]
    ERROR_CLASS_POLICY_DENIED: _ClassVar[ErrorClass]
    ERROR_CLASS_BUDGET_EXHAUSTED: _ClassVar[ErrorClass]
    ERROR_CLASS_CANCELLED: _ClassVar[ErrorClass]
    ERROR_CLASS_OUTCOME_UNKNOWN: _ClassVar[ErrorClass]
    ERROR_CLASS_INTERNAL: _ClassVar[ErrorClass]
ERROR_CLASS_UNSPECIFIED: ErrorClass
ERROR_CLASS_CRASH: ErrorClass
ERROR_CLASS_RATE_LIMIT: ErrorClass
ERROR_CLASS_FATAL: ErrorClass
ERROR_CLASS_AGENT_UNAVAILABLE: ErrorClass
ERROR_CLASS_TRANSIENT: ErrorClass
ERROR_CLASS_TIMEOUT: ErrorClass
ERROR_CLASS_INVALID_ARGUMENTS: ErrorClass
ERROR_CLASS_INVALID_RESULT: ErrorClass
ERROR_CLASS_SANDBOX_VIOLATION: ErrorClass
ERROR_CLASS_PRECONDITION_FAILED: ErrorClass
ERROR_CLASS_POSTCONDITION_FAILED: ErrorClass
ERROR_CLASS_APPROVAL_DENIED: ErrorClass
ERROR_CLASS_POLICY_DENIED: ErrorClass
ERROR_CLASS_BUDGET_EXHAUSTED: ErrorClass
ERROR_CLASS_CANCELLED: ErrorClass
ERROR_CLASS_OUTCOME_UNKNOWN: ErrorClass
ERROR_CLASS_INTERNAL: ErrorClass

class Failure(_message.Message):
    __slots__ = ("error_class", "message", "reason", "retryable", "last_output", "metadata", "retry_after", "quota", "cause")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ERROR_CLASS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    RETRYABLE_FIELD_NUMBER: _ClassVar[int]
    LAST_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_FIELD_NUMBER: _ClassVar[int]
    QUOTA_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    error_class: ErrorClass
    message: str
    reason: str
    retryable: bool
    last_output: LastOutput
    metadata: _containers.ScalarMap[str, str]
    retry_after: _duration_pb2.Duration
    quota: QuotaState
    cause: Failure
    def __init__(self, error_class: _Optional[_Union[ErrorClass, str]] = ..., message: _Optional[str] = ..., reason: _Optional[str] = ..., retryable: bool = ..., last_output: _Optional[_Union[LastOutput, _Mapping]] = ..., metadata: _Optional[_Mapping[str, str]] = ..., retry_after: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., quota: _Optional[_Union[QuotaState, _Mapping]] = ..., cause: _Optional[_Union[Failure, _Mapping]] = ...) -> None: ...

class QuotaState(_message.Message):
    __slots__ = ("name", "limit", "remaining", "reset_time")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    REMAINING_FIELD_NUMBER: _ClassVar[int]
    RESET_TIME_FIELD_NUMBER: _ClassVar[int]
    name: str
    limit: int
    remaining: int
    reset_time: _timestamp_pb2.Timestamp
    def __init__(self, name: _Optional[str] = ..., limit: _Optional[int] = ..., remaining: _Optional[int] = ..., reset_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class LastOutput(_message.Message):
    __slots__ = ("stdout", "stderr", "stdout_truncated", "stderr_truncated")
    STDOUT_FIELD_NUMBER: _ClassVar[int]
    STDERR_FIELD_NUMBER: _ClassVar[int]
    STDOUT_TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    STDERR_TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    stdout: str
    stderr: str
    stdout_truncated: bool
    stderr_truncated: bool
    def __init__(self, stdout: _Optional[str] = ..., stderr: _Optional[str] = ..., stdout_truncated: bool = ..., stderr_truncated: bool = ...) -> None: ...
