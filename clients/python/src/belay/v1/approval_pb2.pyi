import datetime

from belay.v1 import effect_pb2 as _effect_pb2
from belay.v1 import form_pb2 as _form_pb2
from belay.v1 import options_pb2 as _options_pb2
from belay.v1 import policy_pb2 as _policy_pb2
from belay.v1 import tool_call_pb2 as _tool_call_pb2
from belay.v1 import trace_context_pb2 as _trace_context_pb2
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

class Decision(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DECISION_UNSPECIFIED: _ClassVar[Decision]
    DECISION_APPROVE: _ClassVar[Decision]
    DECISION_DENY: _ClassVar[Decision]
    DECISION_SKIP: _ClassVar[Decision]
    DECISION_EXPIRE: _ClassVar[Decision]

class ApprovalView(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    APPROVAL_VIEW_UNSPECIFIED: _ClassVar[ApprovalView]
    APPROVAL_VIEW_BASIC: _ClassVar[ApprovalView]
    APPROVAL_VIEW_FULL: _ClassVar[ApprovalView]
DECISION_UNSPECIFIED: Decision
DECISION_APPROVE: Decision
DECISION_DENY: Decision
DECISION_SKIP: Decision
DECISION_EXPIRE: Decision
APPROVAL_VIEW_UNSPECIFIED: ApprovalView
APPROVAL_VIEW_BASIC: ApprovalView
APPROVAL_VIEW_FULL: ApprovalView

class Approval(_message.Message):
    __slots__ = ("name", "state", "kind", "execution", "step_id", "call", "tool", "operation", "subject_digest", "subject", "preview", "decision", "effect", "requested_by", "create_time", "expire_time", "decide_time", "decided_by", "decide_reason", "revision", "trace", "form", "reveals", "risk", "request_reason")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATE_UNSPECIFIED: _ClassVar[Approval.State]
        STATE_PENDING: _ClassVar[Approval.State]
        STATE_APPROVED: _ClassVar[Approval.State]
        STATE_DENIED: _ClassVar[Approval.State]
        STATE_SKIPPED: _ClassVar[Approval.State]
        STATE_EXPIRED: _ClassVar[Approval.State]
        STATE_CANCELLED: _ClassVar[Approval.State]
        STATE_CONSUMED: _ClassVar[Approval.State]
        STATE_STALE: _ClassVar[Approval.State]
        STATE_ANSWERED: _ClassVar[Approval.State]
    STATE_UNSPECIFIED: Approval.State
    STATE_PENDING: Approval.State
    STATE_APPROVED: Approval.State
    STATE_DENIED: Approval.State
    STATE_SKIPPED: Approval.State
    STATE_EXPIRED: Approval.State
    STATE_CANCELLED: Approval.State
    STATE_CONSUMED: Approval.State
    STATE_STALE: Approval.State
    STATE_ANSWERED: Approval.State
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_FIELD_NUMBER: _ClassVar[int]
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    CALL_FIELD_NUMBER: _ClassVar[int]
    TOOL_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_DIGEST_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    PREVIEW_FIELD_NUMBER: _ClassVar[int]
    DECISION_FIELD_NUMBER: _ClassVar[int]
    EFFECT_FIELD_NUMBER: _ClassVar[int]
    REQUESTED_BY_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
    DECIDE_TIME_FIELD_NUMBER: _ClassVar[int]
    DECIDED_BY_FIELD_NUMBER: _ClassVar[int]
    DECIDE_REASON_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    TRACE_FIELD_NUMBER: _ClassVar[int]
    FORM_FIELD_NUMBER: _ClassVar[int]
    REVEALS_FIELD_NUMBER: _ClassVar[int]
    RISK_FIELD_NUMBER: _ClassVar[int]
    REQUEST_REASON_FIELD_NUMBER: _ClassVar[int]
    name: str
    state: Approval.State
    kind: _tool_call_pb2.ApprovalNeed.Kind
    execution: str
    step_id: str
    call: str
    tool: str
    operation: str
    subject_digest: str
    subject: bytes
    preview: Preview
    decision: _policy_pb2.PolicyDecision
    effect: _effect_pb2.EffectSummary
    requested_by: str
    create_time: _timestamp_pb2.Timestamp
    expire_time: _timestamp_pb2.Timestamp
    decide_time: _timestamp_pb2.Timestamp
    decided_by: str
    decide_reason: str
    revision: int
    trace: _trace_context_pb2.TraceContext
    form: _form_pb2.Form
    reveals: _containers.RepeatedCompositeFieldContainer[Reveal]
    risk: _tool_call_pb2.Risk
    request_reason: str
    def __init__(self, name: _Optional[str] = ..., state: _Optional[_Union[Approval.State, str]] = ..., kind: _Optional[_Union[_tool_call_pb2.ApprovalNeed.Kind, str]] = ..., execution: _Optional[str] = ..., step_id: _Optional[str] = ..., call: _Optional[str] = ..., tool: _Optional[str] = ..., operation: _Optional[str] = ..., subject_digest: _Optional[str] = ..., subject: _Optional[bytes] = ..., preview: _Optional[_Union[Preview, _Mapping]] = ..., decision: _Optional[_Union[_policy_pb2.PolicyDecision, _Mapping]] = ..., effect: _Optional[_Union[_effect_pb2.EffectSummary, _Mapping]] = ..., requested_by: _Optional[str] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., expire_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., decide_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., decided_by: _Optional[str] = ..., decide_reason: _Optional[str] = ..., revision: _Optional[int] = ..., trace: _Optional[_Union[_trace_context_pb2.TraceContext, _Mapping]] = ..., form: _Optional[_Union[_form_pb2.Form, _Mapping]] = ..., reveals: _Optional[_Iterable[_Union[Reveal, _Mapping]]] = ..., risk: _Optional[_Union[_tool_call_pb2.Risk, str]] = ..., request_reason: _Optional[str] = ...) -> None: ...

class Reveal(_message.Message):
    __slots__ = ("principal", "index", "digest", "reveal_time", "of_call")
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    REVEAL_TIME_FIELD_NUMBER: _ClassVar[int]
    OF_CALL_FIELD_NUMBER: _ClassVar[int]
    principal: str
    index: int
    digest: str
    reveal_time: _timestamp_pb2.Timestamp
    of_call: bool
    def __init__(self, principal: _Optional[str] = ..., index: _Optional[int] = ..., digest: _Optional[str] = ..., reveal_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., of_call: bool = ...) -> None: ...

class Preview(_message.Message):
    __slots__ = ("headline", "working_directory", "workspace", "reach", "files", "more_files", "hidden_values", "hidden_note")
    HEADLINE_FIELD_NUMBER: _ClassVar[int]
    WORKING_DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    REACH_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    MORE_FILES_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_VALUES_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_NOTE_FIELD_NUMBER: _ClassVar[int]
    headline: str
    working_directory: str
    workspace: str
    reach: _containers.RepeatedScalarFieldContainer[str]
    files: _containers.RepeatedCompositeFieldContainer[FileDiff]
    more_files: int
    hidden_values: int
    hidden_note: str
    def __init__(self, headline: _Optional[str] = ..., working_directory: _Optional[str] = ..., workspace: _Optional[str] = ..., reach: _Optional[_Iterable[str]] = ..., files: _Optional[_Iterable[_Union[FileDiff, _Mapping]]] = ..., more_files: _Optional[int] = ..., hidden_values: _Optional[int] = ..., hidden_note: _Optional[str] = ...) -> None: ...

class FileDiff(_message.Message):
    __slots__ = ("change", "unified", "added", "removed", "note", "count", "hidden_lines")
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    UNIFIED_FIELD_NUMBER: _ClassVar[int]
    ADDED_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_LINES_FIELD_NUMBER: _ClassVar[int]
    change: _effect_pb2.PathChange
    unified: str
    added: int
    removed: int
    note: str
    count: int
    hidden_lines: int
    def __init__(self, change: _Optional[_Union[_effect_pb2.PathChange, _Mapping]] = ..., unified: _Optional[str] = ..., added: _Optional[int] = ..., removed: _Optional[int] = ..., note: _Optional[str] = ..., count: _Optional[int] = ..., hidden_lines: _Optional[int] = ...) -> None: ...
