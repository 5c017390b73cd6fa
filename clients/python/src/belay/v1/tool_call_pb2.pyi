import datetime

from belay.v1 import effect_pb2 as _effect_pb2
from belay.v1 import failure_pb2 as _failure_pb2
from belay.v1 import options_pb2 as _options_pb2
from belay.v1 import payload_pb2 as _payload_pb2
from belay.v1 import policy_pb2 as _policy_pb2
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

class Risk(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RISK_UNSPECIFIED: _ClassVar[Risk]
    RISK_LOW: _ClassVar[Risk]
    RISK_MEDIUM: _ClassVar[Risk]
    RISK_HIGH: _ClassVar[Risk]
RISK_UNSPECIFIED: Risk
RISK_LOW: Risk
RISK_MEDIUM: Risk
RISK_HIGH: Risk

class ToolCall(_message.Message):
    __slots__ = ("name", "step_id", "attempt", "operation", "tool", "state", "request_time", "end_time", "failure", "result_bytes", "result_blob", "approval")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATE_UNSPECIFIED: _ClassVar[ToolCall.State]
        STATE_REQUESTED: _ClassVar[ToolCall.State]
        STATE_AWAITING_APPROVAL: _ClassVar[ToolCall.State]
        STATE_RUNNING: _ClassVar[ToolCall.State]
        STATE_COMPLETED: _ClassVar[ToolCall.State]
        STATE_FAILED: _ClassVar[ToolCall.State]
        STATE_TIMED_OUT: _ClassVar[ToolCall.State]
        STATE_DENIED: _ClassVar[ToolCall.State]
        STATE_CANCELLED: _ClassVar[ToolCall.State]
        STATE_OUTCOME_UNKNOWN: _ClassVar[ToolCall.State]
    STATE_UNSPECIFIED: ToolCall.State
    STATE_REQUESTED: ToolCall.State
    STATE_AWAITING_APPROVAL: ToolCall.State
    STATE_RUNNING: ToolCall.State
    STATE_COMPLETED: ToolCall.State
    STATE_FAILED: ToolCall.State
    STATE_TIMED_OUT: ToolCall.State
    STATE_DENIED: ToolCall.State
    STATE_CANCELLED: ToolCall.State
    STATE_OUTCOME_UNKNOWN: ToolCall.State
    NAME_FIELD_NUMBER: _ClassVar[int]
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    TOOL_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    RESULT_BYTES_FIELD_NUMBER: _ClassVar[int]
    RESULT_BLOB_FIELD_NUMBER: _ClassVar[int]
    APPROVAL_FIELD_NUMBER: _ClassVar[int]
    name: str
    step_id: str
    attempt: int
    operation: int
    tool: str
    state: ToolCall.State
    request_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    failure: _failure_pb2.Failure
    result_bytes: int
    result_blob: _payload_pb2.BlobRef
    approval: str
    def __init__(self, name: _Optional[str] = ..., step_id: _Optional[str] = ..., attempt: _Optional[int] = ..., operation: _Optional[int] = ..., tool: _Optional[str] = ..., state: _Optional[_Union[ToolCall.State, str]] = ..., request_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., failure: _Optional[_Union[_failure_pb2.Failure, _Mapping]] = ..., result_bytes: _Optional[int] = ..., result_blob: _Optional[_Union[_payload_pb2.BlobRef, _Mapping]] = ..., approval: _Optional[str] = ...) -> None: ...

class ApprovalNeed(_message.Message):
    __slots__ = ("kind", "subject_digest", "decision", "effect", "allowing_rules", "risk")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[ApprovalNeed.Kind]
        KIND_CALL: _ClassVar[ApprovalNeed.Kind]
        KIND_EFFECT: _ClassVar[ApprovalNeed.Kind]
        KIND_FORM: _ClassVar[ApprovalNeed.Kind]
    KIND_UNSPECIFIED: ApprovalNeed.Kind
    KIND_CALL: ApprovalNeed.Kind
    KIND_EFFECT: ApprovalNeed.Kind
    KIND_FORM: ApprovalNeed.Kind
    KIND_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_DIGEST_FIELD_NUMBER: _ClassVar[int]
    DECISION_FIELD_NUMBER: _ClassVar[int]
    EFFECT_FIELD_NUMBER: _ClassVar[int]
    ALLOWING_RULES_FIELD_NUMBER: _ClassVar[int]
    RISK_FIELD_NUMBER: _ClassVar[int]
    kind: ApprovalNeed.Kind
    subject_digest: str
    decision: _policy_pb2.PolicyDecision
    effect: _effect_pb2.EffectSummary
    allowing_rules: _containers.RepeatedScalarFieldContainer[str]
    risk: Risk
    def __init__(self, kind: _Optional[_Union[ApprovalNeed.Kind, str]] = ..., subject_digest: _Optional[str] = ..., decision: _Optional[_Union[_policy_pb2.PolicyDecision, _Mapping]] = ..., effect: _Optional[_Union[_effect_pb2.EffectSummary, _Mapping]] = ..., allowing_rules: _Optional[_Iterable[str]] = ..., risk: _Optional[_Union[Risk, str]] = ...) -> None: ...

class ToolCallOutput(_message.Message):
    __slots__ = ("stream", "offset", "text")
    class Stream(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STREAM_UNSPECIFIED: _ClassVar[ToolCallOutput.Stream]
        STREAM_STDOUT: _ClassVar[ToolCallOutput.Stream]
        STREAM_STDERR: _ClassVar[ToolCallOutput.Stream]
        STREAM_ANSWER: _ClassVar[ToolCallOutput.Stream]
        STREAM_REASONING: _ClassVar[ToolCallOutput.Stream]
    STREAM_UNSPECIFIED: ToolCallOutput.Stream
    STREAM_STDOUT: ToolCallOutput.Stream
    STREAM_STDERR: ToolCallOutput.Stream
    STREAM_ANSWER: ToolCallOutput.Stream
    STREAM_REASONING: ToolCallOutput.Stream
    STREAM_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    stream: ToolCallOutput.Stream
    offset: int
    text: str
    def __init__(self, stream: _Optional[_Union[ToolCallOutput.Stream, str]] = ..., offset: _Optional[int] = ..., text: _Optional[str] = ...) -> None: ...
