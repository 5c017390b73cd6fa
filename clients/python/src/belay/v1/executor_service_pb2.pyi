import datetime

from belay.v1 import artifact_pb2 as _artifact_pb2
from belay.v1 import audit_pb2 as _audit_pb2
from belay.v1 import budget_pb2 as _budget_pb2
from belay.v1 import comparison_pb2 as _comparison_pb2
from belay.v1 import event_pb2 as _event_pb2
from belay.v1 import execution_pb2 as _execution_pb2
from belay.v1 import explanation_pb2 as _explanation_pb2
from belay.v1 import options_pb2 as _options_pb2
from belay.v1 import payload_pb2 as _payload_pb2
from belay.v1 import plan_pb2 as _plan_pb2
from belay.v1 import timeline_pb2 as _timeline_pb2
from belay.v1 import tool_pb2 as _tool_pb2
from belay.v1 import tool_call_pb2 as _tool_call_pb2
from belay.v1 import watch_pb2 as _watch_pb2
from google.api import field_behavior_pb2 as _field_behavior_pb2
from google.api import resource_pb2 as _resource_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ValidatePlanRequest(_message.Message):
    __slots__ = ("parent", "plan", "document")
    PARENT_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_FIELD_NUMBER: _ClassVar[int]
    parent: str
    plan: _plan_pb2.Plan
    document: _plan_pb2.PlanDocument
    def __init__(self, parent: _Optional[str] = ..., plan: _Optional[_Union[_plan_pb2.Plan, _Mapping]] = ..., document: _Optional[_Union[_plan_pb2.PlanDocument, _Mapping]] = ...) -> None: ...

class ValidatePlanResponse(_message.Message):
    __slots__ = ("violations", "plan", "warnings")
    VIOLATIONS_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    violations: _containers.RepeatedCompositeFieldContainer[_plan_pb2.PlanViolation]
    plan: _plan_pb2.Plan
    warnings: _containers.RepeatedCompositeFieldContainer[_plan_pb2.PlanViolation]
    def __init__(self, violations: _Optional[_Iterable[_Union[_plan_pb2.PlanViolation, _Mapping]]] = ..., plan: _Optional[_Union[_plan_pb2.Plan, _Mapping]] = ..., warnings: _Optional[_Iterable[_Union[_plan_pb2.PlanViolation, _Mapping]]] = ...) -> None: ...

class StartExecutionRequest(_message.Message):
    __slots__ = ("parent", "execution_id", "plan", "document", "request_id", "validate_only", "labels", "approval_mode", "workspace", "start_paused", "inputs", "start_time", "step_timeout")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PARENT_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_ID_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    APPROVAL_MODE_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    START_PAUSED_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    STEP_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    parent: str
    execution_id: str
    plan: _plan_pb2.Plan
    document: _plan_pb2.PlanDocument
    request_id: str
    validate_only: bool
    labels: _containers.ScalarMap[str, str]
    approval_mode: _execution_pb2.ApprovalMode
    workspace: str
    start_paused: bool
    inputs: _payload_pb2.Payload
    start_time: _timestamp_pb2.Timestamp
    step_timeout: _duration_pb2.Duration
    def __init__(self, parent: _Optional[str] = ..., execution_id: _Optional[str] = ..., plan: _Optional[_Union[_plan_pb2.Plan, _Mapping]] = ..., document: _Optional[_Union[_plan_pb2.PlanDocument, _Mapping]] = ..., request_id: _Optional[str] = ..., validate_only: bool = ..., labels: _Optional[_Mapping[str, str]] = ..., approval_mode: _Optional[_Union[_execution_pb2.ApprovalMode, str]] = ..., workspace: _Optional[str] = ..., start_paused: bool = ..., inputs: _Optional[_Union[_payload_pb2.Payload, _Mapping]] = ..., start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., step_timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class GetExecutionRequest(_message.Message):
    __slots__ = ("name", "view")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    name: str
    view: _execution_pb2.ExecutionView
    def __init__(self, name: _Optional[str] = ..., view: _Optional[_Union[_execution_pb2.ExecutionView, str]] = ...) -> None: ...

class GetStepRequest(_message.Message):
    __slots__ = ("name", "view")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    name: str
    view: _execution_pb2.StepView
    def __init__(self, name: _Optional[str] = ..., view: _Optional[_Union[_execution_pb2.StepView, str]] = ...) -> None: ...

class ReadBlobRequest(_message.Message):
    __slots__ = ("name", "offset")
    NAME_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    name: str
    offset: int
    def __init__(self, name: _Optional[str] = ..., offset: _Optional[int] = ...) -> None: ...

class ReadBlobResponse(_message.Message):
    __slots__ = ("offset", "data")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    offset: int
    data: bytes
    def __init__(self, offset: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class ListStepsRequest(_message.Message):
    __slots__ = ("parent", "page_size", "page_token", "view")
    PARENT_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    parent: str
    page_size: int
    page_token: str
    view: _execution_pb2.StepView
    def __init__(self, parent: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., view: _Optional[_Union[_execution_pb2.StepView, str]] = ...) -> None: ...

class ListStepsResponse(_message.Message):
    __slots__ = ("steps", "next_page_token", "last_sequence")
    STEPS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    steps: _containers.RepeatedCompositeFieldContainer[_execution_pb2.Step]
    next_page_token: str
    last_sequence: int
    def __init__(self, steps: _Optional[_Iterable[_Union[_execution_pb2.Step, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., last_sequence: _Optional[int] = ...) -> None: ...

class ListToolCallsRequest(_message.Message):
    __slots__ = ("parent", "page_size", "page_token")
    PARENT_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    parent: str
    page_size: int
    page_token: str
    def __init__(self, parent: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListToolCallsResponse(_message.Message):
    __slots__ = ("tool_calls", "next_page_token")
    TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    tool_calls: _containers.RepeatedCompositeFieldContainer[_tool_call_pb2.ToolCall]
    next_page_token: str
    def __init__(self, tool_calls: _Optional[_Iterable[_Union[_tool_call_pb2.ToolCall, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ListArtifactsRequest(_message.Message):
    __slots__ = ("parent", "page_size", "page_token", "kind", "path_prefix")
    PARENT_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    PATH_PREFIX_FIELD_NUMBER: _ClassVar[int]
    parent: str
    page_size: int
    page_token: str
    kind: _artifact_pb2.Artifact.Kind
    path_prefix: str
    def __init__(self, parent: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., kind: _Optional[_Union[_artifact_pb2.Artifact.Kind, str]] = ..., path_prefix: _Optional[str] = ...) -> None: ...

class ListArtifactsResponse(_message.Message):
    __slots__ = ("artifacts", "next_page_token", "unlisted_file_count")
    ARTIFACTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    UNLISTED_FILE_COUNT_FIELD_NUMBER: _ClassVar[int]
    artifacts: _containers.RepeatedCompositeFieldContainer[_artifact_pb2.Artifact]
    next_page_token: str
    unlisted_file_count: int
    def __init__(self, artifacts: _Optional[_Iterable[_Union[_artifact_pb2.Artifact, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., unlisted_file_count: _Optional[int] = ...) -> None: ...

class GetArtifactRequest(_message.Message):
    __slots__ = ("name", "offset")
    NAME_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    name: str
    offset: int
    def __init__(self, name: _Optional[str] = ..., offset: _Optional[int] = ...) -> None: ...

class GetArtifactResponse(_message.Message):
    __slots__ = ("artifact", "offset", "data")
    ARTIFACT_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    artifact: _artifact_pb2.Artifact
    offset: int
    data: bytes
    def __init__(self, artifact: _Optional[_Union[_artifact_pb2.Artifact, _Mapping]] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class GetProvenanceRequest(_message.Message):
    __slots__ = ("name", "max_artifacts")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MAX_ARTIFACTS_FIELD_NUMBER: _ClassVar[int]
    name: str
    max_artifacts: int
    def __init__(self, name: _Optional[str] = ..., max_artifacts: _Optional[int] = ...) -> None: ...

class GetProvenanceResponse(_message.Message):
    __slots__ = ("artifact", "ancestors", "descendants", "ancestors_truncated", "descendants_truncated")
    ARTIFACT_FIELD_NUMBER: _ClassVar[int]
    ANCESTORS_FIELD_NUMBER: _ClassVar[int]
    DESCENDANTS_FIELD_NUMBER: _ClassVar[int]
    ANCESTORS_TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    DESCENDANTS_TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    artifact: _artifact_pb2.Artifact
    ancestors: _containers.RepeatedCompositeFieldContainer[_artifact_pb2.Artifact]
    descendants: _containers.RepeatedCompositeFieldContainer[_artifact_pb2.Artifact]
    ancestors_truncated: bool
    descendants_truncated: bool
    def __init__(self, artifact: _Optional[_Union[_artifact_pb2.Artifact, _Mapping]] = ..., ancestors: _Optional[_Iterable[_Union[_artifact_pb2.Artifact, _Mapping]]] = ..., descendants: _Optional[_Iterable[_Union[_artifact_pb2.Artifact, _Mapping]]] = ..., ancestors_truncated: bool = ..., descendants_truncated: bool = ...) -> None: ...

class ListAuditEntriesRequest(_message.Message):
    __slots__ = ("parent", "page_size", "page_token", "level", "min_severity")
    PARENT_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    MIN_SEVERITY_FIELD_NUMBER: _ClassVar[int]
    parent: str
    page_size: int
    page_token: str
    level: _audit_pb2.AuditLevel
    min_severity: _audit_pb2.AuditEntry.Severity
    def __init__(self, parent: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., level: _Optional[_Union[_audit_pb2.AuditLevel, str]] = ..., min_severity: _Optional[_Union[_audit_pb2.AuditEntry.Severity, str]] = ...) -> None: ...

class ListAuditEntriesResponse(_message.Message):
    __slots__ = ("entries", "next_page_token", "level")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[_audit_pb2.AuditEntry]
    next_page_token: str
    level: _audit_pb2.AuditLevel
    def __init__(self, entries: _Optional[_Iterable[_Union[_audit_pb2.AuditEntry, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., level: _Optional[_Union[_audit_pb2.AuditLevel, str]] = ...) -> None: ...

class ListEventsRequest(_message.Message):
    __slots__ = ("parent", "page_size", "page_token", "kinds")
    PARENT_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    parent: str
    page_size: int
    page_token: str
    kinds: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, parent: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., kinds: _Optional[_Iterable[str]] = ...) -> None: ...

class ListEventsResponse(_message.Message):
    __slots__ = ("events", "next_page_token")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[_event_pb2.ExecutionEvent]
    next_page_token: str
    def __init__(self, events: _Optional[_Iterable[_Union[_event_pb2.ExecutionEvent, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ListExecutionsRequest(_message.Message):
    __slots__ = ("parent", "page_size", "page_token", "filter", "order_by", "include_children")
    PARENT_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    ORDER_BY_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_CHILDREN_FIELD_NUMBER: _ClassVar[int]
    parent: str
    page_size: int
    page_token: str
    filter: str
    order_by: str
    include_children: bool
    def __init__(self, parent: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., filter: _Optional[str] = ..., order_by: _Optional[str] = ..., include_children: bool = ...) -> None: ...

class ListExecutionsResponse(_message.Message):
    __slots__ = ("executions", "next_page_token")
    EXECUTIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    executions: _containers.RepeatedCompositeFieldContainer[_execution_pb2.Execution]
    next_page_token: str
    def __init__(self, executions: _Optional[_Iterable[_Union[_execution_pb2.Execution, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ListNamespacesRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListNamespacesResponse(_message.Message):
    __slots__ = ("namespaces", "next_page_token")
    NAMESPACES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    namespaces: _containers.RepeatedCompositeFieldContainer[Namespace]
    next_page_token: str
    def __init__(self, namespaces: _Optional[_Iterable[_Union[Namespace, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class Namespace(_message.Message):
    __slots__ = ("name", "usage")
    NAME_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    name: str
    usage: NamespaceUsage
    def __init__(self, name: _Optional[str] = ..., usage: _Optional[_Union[NamespaceUsage, _Mapping]] = ...) -> None: ...

class NamespaceUsage(_message.Message):
    __slots__ = ("window_start_time", "window_end_time", "used", "held", "limit")
    WINDOW_START_TIME_FIELD_NUMBER: _ClassVar[int]
    WINDOW_END_TIME_FIELD_NUMBER: _ClassVar[int]
    USED_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    window_start_time: _timestamp_pb2.Timestamp
    window_end_time: _timestamp_pb2.Timestamp
    used: _budget_pb2.BudgetAmounts
    held: _budget_pb2.BudgetAmounts
    limit: _budget_pb2.BudgetAllotment
    def __init__(self, window_start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., window_end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., used: _Optional[_Union[_budget_pb2.BudgetAmounts, _Mapping]] = ..., held: _Optional[_Union[_budget_pb2.BudgetAmounts, _Mapping]] = ..., limit: _Optional[_Union[_budget_pb2.BudgetAllotment, _Mapping]] = ...) -> None: ...

class WatchExecutionsRequest(_message.Message):
    __slots__ = ("parent", "cursor", "heartbeat_interval", "filter", "include_children")
    PARENT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_CHILDREN_FIELD_NUMBER: _ClassVar[int]
    parent: str
    cursor: str
    heartbeat_interval: _duration_pb2.Duration
    filter: str
    include_children: bool
    def __init__(self, parent: _Optional[str] = ..., cursor: _Optional[str] = ..., heartbeat_interval: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., filter: _Optional[str] = ..., include_children: bool = ...) -> None: ...

class WatchExecutionsResponse(_message.Message):
    __slots__ = ("cursor", "reset", "heartbeat", "listed", "execution", "removed")
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    LISTED_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    cursor: str
    reset: _watch_pb2.WatchReset
    heartbeat: _watch_pb2.WatchHeartbeat
    listed: _watch_pb2.WatchListed
    execution: _execution_pb2.Execution
    removed: ExecutionRemoved
    def __init__(self, cursor: _Optional[str] = ..., reset: _Optional[_Union[_watch_pb2.WatchReset, _Mapping]] = ..., heartbeat: _Optional[_Union[_watch_pb2.WatchHeartbeat, _Mapping]] = ..., listed: _Optional[_Union[_watch_pb2.WatchListed, _Mapping]] = ..., execution: _Optional[_Union[_execution_pb2.Execution, _Mapping]] = ..., removed: _Optional[_Union[ExecutionRemoved, _Mapping]] = ...) -> None: ...

class ExecutionRemoved(_message.Message):
    __slots__ = ("name", "deleted")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    name: str
    deleted: bool
    def __init__(self, name: _Optional[str] = ..., deleted: bool = ...) -> None: ...

class WatchExecutionRequest(_message.Message):
    __slots__ = ("name", "cursor", "heartbeat_interval", "view", "include_earlier_events")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_EARLIER_EVENTS_FIELD_NUMBER: _ClassVar[int]
    name: str
    cursor: str
    heartbeat_interval: _duration_pb2.Duration
    view: _execution_pb2.ExecutionView
    include_earlier_events: bool
    def __init__(self, name: _Optional[str] = ..., cursor: _Optional[str] = ..., heartbeat_interval: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., view: _Optional[_Union[_execution_pb2.ExecutionView, str]] = ..., include_earlier_events: bool = ...) -> None: ...

class WatchExecutionResponse(_message.Message):
    __slots__ = ("cursor", "reset", "heartbeat", "snapshot", "event", "execution", "uid", "traceparent")
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    cursor: str
    reset: _watch_pb2.WatchReset
    heartbeat: _watch_pb2.WatchHeartbeat
    snapshot: _execution_pb2.Execution
    event: _event_pb2.ExecutionEvent
    execution: str
    uid: str
    traceparent: str
    def __init__(self, cursor: _Optional[str] = ..., reset: _Optional[_Union[_watch_pb2.WatchReset, _Mapping]] = ..., heartbeat: _Optional[_Union[_watch_pb2.WatchHeartbeat, _Mapping]] = ..., snapshot: _Optional[_Union[_execution_pb2.Execution, _Mapping]] = ..., event: _Optional[_Union[_event_pb2.ExecutionEvent, _Mapping]] = ..., execution: _Optional[str] = ..., uid: _Optional[str] = ..., traceparent: _Optional[str] = ...) -> None: ...

class WaitExecutionRequest(_message.Message):
    __slots__ = ("name", "longest_wait")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LONGEST_WAIT_FIELD_NUMBER: _ClassVar[int]
    name: str
    longest_wait: _duration_pb2.Duration
    def __init__(self, name: _Optional[str] = ..., longest_wait: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class CancelExecutionRequest(_message.Message):
    __slots__ = ("name", "reason", "etag", "request_id", "kill")
    NAME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    KILL_FIELD_NUMBER: _ClassVar[int]
    name: str
    reason: str
    etag: str
    request_id: str
    kill: bool
    def __init__(self, name: _Optional[str] = ..., reason: _Optional[str] = ..., etag: _Optional[str] = ..., request_id: _Optional[str] = ..., kill: bool = ...) -> None: ...

class PauseExecutionRequest(_message.Message):
    __slots__ = ("name", "reason", "etag", "request_id", "discard_calls", "resume_time")
    NAME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    DISCARD_CALLS_FIELD_NUMBER: _ClassVar[int]
    RESUME_TIME_FIELD_NUMBER: _ClassVar[int]
    name: str
    reason: str
    etag: str
    request_id: str
    discard_calls: bool
    resume_time: _timestamp_pb2.Timestamp
    def __init__(self, name: _Optional[str] = ..., reason: _Optional[str] = ..., etag: _Optional[str] = ..., request_id: _Optional[str] = ..., discard_calls: bool = ..., resume_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ResumeExecutionRequest(_message.Message):
    __slots__ = ("name", "etag", "request_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    etag: str
    request_id: str
    def __init__(self, name: _Optional[str] = ..., etag: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class SignalExecutionRequest(_message.Message):
    __slots__ = ("name", "signal", "payload", "request_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    signal: str
    payload: _payload_pb2.Payload
    request_id: str
    def __init__(self, name: _Optional[str] = ..., signal: _Optional[str] = ..., payload: _Optional[_Union[_payload_pb2.Payload, _Mapping]] = ..., request_id: _Optional[str] = ...) -> None: ...

class ResolveStepRequest(_message.Message):
    __slots__ = ("name", "resolution", "result", "reason", "etag", "request_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    RESOLUTION_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    resolution: _execution_pb2.StepResolution
    result: _payload_pb2.Payload
    reason: str
    etag: str
    request_id: str
    def __init__(self, name: _Optional[str] = ..., resolution: _Optional[_Union[_execution_pb2.StepResolution, str]] = ..., result: _Optional[_Union[_payload_pb2.Payload, _Mapping]] = ..., reason: _Optional[str] = ..., etag: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class RetryExecutionRequest(_message.Message):
    __slots__ = ("name", "from_step", "skip_failed", "start_paused", "plan", "document", "reason", "etag", "request_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    FROM_STEP_FIELD_NUMBER: _ClassVar[int]
    SKIP_FAILED_FIELD_NUMBER: _ClassVar[int]
    START_PAUSED_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    from_step: str
    skip_failed: bool
    start_paused: bool
    plan: _plan_pb2.Plan
    document: _plan_pb2.PlanDocument
    reason: str
    etag: str
    request_id: str
    def __init__(self, name: _Optional[str] = ..., from_step: _Optional[str] = ..., skip_failed: bool = ..., start_paused: bool = ..., plan: _Optional[_Union[_plan_pb2.Plan, _Mapping]] = ..., document: _Optional[_Union[_plan_pb2.PlanDocument, _Mapping]] = ..., reason: _Optional[str] = ..., etag: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class ForkExecutionRequest(_message.Message):
    __slots__ = ("name", "execution_id", "from_step", "workspace", "start_paused", "reason", "request_id", "after_turn", "model", "on_current_files")
    NAME_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_ID_FIELD_NUMBER: _ClassVar[int]
    FROM_STEP_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    START_PAUSED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_TURN_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    ON_CURRENT_FILES_FIELD_NUMBER: _ClassVar[int]
    name: str
    execution_id: str
    from_step: str
    workspace: str
    start_paused: bool
    reason: str
    request_id: str
    after_turn: int
    model: str
    on_current_files: bool
    def __init__(self, name: _Optional[str] = ..., execution_id: _Optional[str] = ..., from_step: _Optional[str] = ..., workspace: _Optional[str] = ..., start_paused: bool = ..., reason: _Optional[str] = ..., request_id: _Optional[str] = ..., after_turn: _Optional[int] = ..., model: _Optional[str] = ..., on_current_files: bool = ...) -> None: ...

class UpdatePlanRequest(_message.Message):
    __slots__ = ("name", "plan", "document", "revision", "reason", "etag", "request_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    plan: _plan_pb2.Plan
    document: _plan_pb2.PlanDocument
    revision: int
    reason: str
    etag: str
    request_id: str
    def __init__(self, name: _Optional[str] = ..., plan: _Optional[_Union[_plan_pb2.Plan, _Mapping]] = ..., document: _Optional[_Union[_plan_pb2.PlanDocument, _Mapping]] = ..., revision: _Optional[int] = ..., reason: _Optional[str] = ..., etag: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class RetryStepRequest(_message.Message):
    __slots__ = ("name", "change", "reason", "etag", "request_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    change: _execution_pb2.RetryChange
    reason: str
    etag: str
    request_id: str
    def __init__(self, name: _Optional[str] = ..., change: _Optional[_Union[_execution_pb2.RetryChange, str]] = ..., reason: _Optional[str] = ..., etag: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class SkipStepRequest(_message.Message):
    __slots__ = ("name", "reason", "etag", "request_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    reason: str
    etag: str
    request_id: str
    def __init__(self, name: _Optional[str] = ..., reason: _Optional[str] = ..., etag: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class SetStepOutputRequest(_message.Message):
    __slots__ = ("name", "output", "reason", "etag", "request_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    output: _payload_pb2.Payload
    reason: str
    etag: str
    request_id: str
    def __init__(self, name: _Optional[str] = ..., output: _Optional[_Union[_payload_pb2.Payload, _Mapping]] = ..., reason: _Optional[str] = ..., etag: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class DeleteExecutionRequest(_message.Message):
    __slots__ = ("name", "etag", "request_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    etag: str
    request_id: str
    def __init__(self, name: _Optional[str] = ..., etag: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class DeleteExecutionResponse(_message.Message):
    __slots__ = ("complete",)
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    complete: bool
    def __init__(self, complete: bool = ...) -> None: ...

class ListCapabilitiesRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListCapabilitiesResponse(_message.Message):
    __slots__ = ("tools", "step_kinds", "next_page_token", "tool_servers")
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    STEP_KINDS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TOOL_SERVERS_FIELD_NUMBER: _ClassVar[int]
    tools: _containers.RepeatedCompositeFieldContainer[_tool_pb2.Tool]
    step_kinds: _containers.RepeatedScalarFieldContainer[str]
    next_page_token: str
    tool_servers: _containers.RepeatedCompositeFieldContainer[_tool_pb2.ToolServer]
    def __init__(self, tools: _Optional[_Iterable[_Union[_tool_pb2.Tool, _Mapping]]] = ..., step_kinds: _Optional[_Iterable[str]] = ..., next_page_token: _Optional[str] = ..., tool_servers: _Optional[_Iterable[_Union[_tool_pb2.ToolServer, _Mapping]]] = ...) -> None: ...
