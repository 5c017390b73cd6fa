import datetime

from belay.v1 import budget_pb2 as _budget_pb2
from belay.v1 import failure_pb2 as _failure_pb2
from belay.v1 import options_pb2 as _options_pb2
from belay.v1 import payload_pb2 as _payload_pb2
from belay.v1 import plan_pb2 as _plan_pb2
from belay.v1 import policy_pb2 as _policy_pb2
from belay.v1 import trace_context_pb2 as _trace_context_pb2
from belay.v1 import waiting_reason_pb2 as _waiting_reason_pb2
from google.api import field_behavior_pb2 as _field_behavior_pb2
from google.api import resource_pb2 as _resource_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ApprovalMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    APPROVAL_MODE_UNSPECIFIED: _ClassVar[ApprovalMode]
    APPROVAL_MODE_WAIT: _ClassVar[ApprovalMode]
    APPROVAL_MODE_FAIL: _ClassVar[ApprovalMode]
    APPROVAL_MODE_SKIP: _ClassVar[ApprovalMode]
    APPROVAL_MODE_AUTO: _ClassVar[ApprovalMode]

class SkipReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SKIP_REASON_UNSPECIFIED: _ClassVar[SkipReason]
    SKIP_REASON_DEPENDENCY_FAILED: _ClassVar[SkipReason]
    SKIP_REASON_DEPENDENCY_SKIPPED: _ClassVar[SkipReason]
    SKIP_REASON_CONDITION_FALSE: _ClassVar[SkipReason]
    SKIP_REASON_STOP_ON_ERROR: _ClassVar[SkipReason]
    SKIP_REASON_CANCELLED: _ClassVar[SkipReason]
    SKIP_REASON_TIMED_OUT: _ClassVar[SkipReason]
    SKIP_REASON_APPROVAL_SKIPPED: _ClassVar[SkipReason]
    SKIP_REASON_NON_INTERACTIVE: _ClassVar[SkipReason]
    SKIP_REASON_REQUESTED: _ClassVar[SkipReason]
    SKIP_REASON_PLAN_UPDATED: _ClassVar[SkipReason]
    SKIP_REASON_NOT_LISTED: _ClassVar[SkipReason]

class StepResolution(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STEP_RESOLUTION_UNSPECIFIED: _ClassVar[StepResolution]
    STEP_RESOLUTION_COMPLETED: _ClassVar[StepResolution]
    STEP_RESOLUTION_FAILED: _ClassVar[StepResolution]
    STEP_RESOLUTION_AGAIN: _ClassVar[StepResolution]

class RetryChange(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RETRY_CHANGE_UNSPECIFIED: _ClassVar[RetryChange]
    RETRY_CHANGE_NOW: _ClassVar[RetryChange]
    RETRY_CHANGE_CANCEL: _ClassVar[RetryChange]
    RETRY_CHANGE_FALLBACK: _ClassVar[RetryChange]

class ExecutionView(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EXECUTION_VIEW_UNSPECIFIED: _ClassVar[ExecutionView]
    EXECUTION_VIEW_BASIC: _ClassVar[ExecutionView]
    EXECUTION_VIEW_FULL: _ClassVar[ExecutionView]

class StepView(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STEP_VIEW_UNSPECIFIED: _ClassVar[StepView]
    STEP_VIEW_BASIC: _ClassVar[StepView]
    STEP_VIEW_FULL: _ClassVar[StepView]

class LimitState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LIMIT_STATE_UNSPECIFIED: _ClassVar[LimitState]
    LIMIT_STATE_WAITING: _ClassVar[LimitState]
    LIMIT_STATE_HELD: _ClassVar[LimitState]
APPROVAL_MODE_UNSPECIFIED: ApprovalMode
APPROVAL_MODE_WAIT: ApprovalMode
APPROVAL_MODE_FAIL: ApprovalMode
APPROVAL_MODE_SKIP: ApprovalMode
APPROVAL_MODE_AUTO: ApprovalMode
SKIP_REASON_UNSPECIFIED: SkipReason
SKIP_REASON_DEPENDENCY_FAILED: SkipReason
SKIP_REASON_DEPENDENCY_SKIPPED: SkipReason
SKIP_REASON_CONDITION_FALSE: SkipReason
SKIP_REASON_STOP_ON_ERROR: SkipReason
SKIP_REASON_CANCELLED: SkipReason
SKIP_REASON_TIMED_OUT: SkipReason
SKIP_REASON_APPROVAL_SKIPPED: SkipReason
SKIP_REASON_NON_INTERACTIVE: SkipReason
SKIP_REASON_REQUESTED: SkipReason
SKIP_REASON_PLAN_UPDATED: SkipReason
SKIP_REASON_NOT_LISTED: SkipReason
STEP_RESOLUTION_UNSPECIFIED: StepResolution
STEP_RESOLUTION_COMPLETED: StepResolution
STEP_RESOLUTION_FAILED: StepResolution
STEP_RESOLUTION_AGAIN: StepResolution
RETRY_CHANGE_UNSPECIFIED: RetryChange
RETRY_CHANGE_NOW: RetryChange
RETRY_CHANGE_CANCEL: RetryChange
RETRY_CHANGE_FALLBACK: RetryChange
EXECUTION_VIEW_UNSPECIFIED: ExecutionView
EXECUTION_VIEW_BASIC: ExecutionView
EXECUTION_VIEW_FULL: ExecutionView
STEP_VIEW_UNSPECIFIED: StepView
STEP_VIEW_BASIC: StepView
STEP_VIEW_FULL: StepView
LIMIT_STATE_UNSPECIFIED: LimitState
LIMIT_STATE_WAITING: LimitState
LIMIT_STATE_HELD: LimitState

class Execution(_message.Message):
    __slots__ = ("name", "uid", "state", "plan_id", "plan", "steps", "totals", "last_sequence", "etag", "principal", "labels", "workspace", "approval_mode", "create_time", "start_time", "end_time", "deadline_time", "failure", "waiting", "trace", "approval_wait", "plan_revision", "inputs", "parent_step", "forked_from", "planned_calls", "spent", "allotment", "made_folder", "dry_run", "outputs", "outputs_failure", "limits", "limit_state")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATE_UNSPECIFIED: _ClassVar[Execution.State]
        STATE_PENDING: _ClassVar[Execution.State]
        STATE_RUNNING: _ClassVar[Execution.State]
        STATE_AWAITING_APPROVAL: _ClassVar[Execution.State]
        STATE_PAUSED: _ClassVar[Execution.State]
        STATE_CANCELLING: _ClassVar[Execution.State]
        STATE_COMPLETED: _ClassVar[Execution.State]
        STATE_PARTIAL: _ClassVar[Execution.State]
        STATE_FAILED: _ClassVar[Execution.State]
        STATE_CANCELLED: _ClassVar[Execution.State]
        STATE_TIMED_OUT: _ClassVar[Execution.State]
    STATE_UNSPECIFIED: Execution.State
    STATE_PENDING: Execution.State
    STATE_RUNNING: Execution.State
    STATE_AWAITING_APPROVAL: Execution.State
    STATE_PAUSED: Execution.State
    STATE_CANCELLING: Execution.State
    STATE_COMPLETED: Execution.State
    STATE_PARTIAL: Execution.State
    STATE_FAILED: Execution.State
    STATE_CANCELLED: Execution.State
    STATE_TIMED_OUT: Execution.State
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PLAN_ID_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    TOTALS_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    APPROVAL_MODE_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_TIME_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    TRACE_FIELD_NUMBER: _ClassVar[int]
    APPROVAL_WAIT_FIELD_NUMBER: _ClassVar[int]
    PLAN_REVISION_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    PARENT_STEP_FIELD_NUMBER: _ClassVar[int]
    FORKED_FROM_FIELD_NUMBER: _ClassVar[int]
    PLANNED_CALLS_FIELD_NUMBER: _ClassVar[int]
    SPENT_FIELD_NUMBER: _ClassVar[int]
    ALLOTMENT_FIELD_NUMBER: _ClassVar[int]
    MADE_FOLDER_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FAILURE_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    LIMIT_STATE_FIELD_NUMBER: _ClassVar[int]
    name: str
    uid: str
    state: Execution.State
    plan_id: str
    plan: _plan_pb2.Plan
    steps: _containers.RepeatedCompositeFieldContainer[Step]
    totals: StepTotals
    last_sequence: int
    etag: str
    principal: str
    labels: _containers.ScalarMap[str, str]
    workspace: str
    approval_mode: ApprovalMode
    create_time: _timestamp_pb2.Timestamp
    start_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    deadline_time: _timestamp_pb2.Timestamp
    failure: _failure_pb2.Failure
    waiting: _containers.RepeatedCompositeFieldContainer[_waiting_reason_pb2.WaitingReason]
    trace: _trace_context_pb2.TraceContext
    approval_wait: _duration_pb2.Duration
    plan_revision: int
    inputs: _payload_pb2.Payload
    parent_step: str
    forked_from: str
    planned_calls: _containers.RepeatedCompositeFieldContainer[PlannedCall]
    spent: _budget_pb2.BudgetAmounts
    allotment: _budget_pb2.BudgetAllotment
    made_folder: str
    dry_run: bool
    outputs: _payload_pb2.Payload
    outputs_failure: _failure_pb2.Failure
    limits: _containers.RepeatedCompositeFieldContainer[_plan_pb2.ExecutionLimit]
    limit_state: LimitState
    def __init__(self, name: _Optional[str] = ..., uid: _Optional[str] = ..., state: _Optional[_Union[Execution.State, str]] = ..., plan_id: _Optional[str] = ..., plan: _Optional[_Union[_plan_pb2.Plan, _Mapping]] = ..., steps: _Optional[_Iterable[_Union[Step, _Mapping]]] = ..., totals: _Optional[_Union[StepTotals, _Mapping]] = ..., last_sequence: _Optional[int] = ..., etag: _Optional[str] = ..., principal: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., workspace: _Optional[str] = ..., approval_mode: _Optional[_Union[ApprovalMode, str]] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., deadline_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., failure: _Optional[_Union[_failure_pb2.Failure, _Mapping]] = ..., waiting: _Optional[_Iterable[_Union[_waiting_reason_pb2.WaitingReason, _Mapping]]] = ..., trace: _Optional[_Union[_trace_context_pb2.TraceContext, _Mapping]] = ..., approval_wait: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., plan_revision: _Optional[int] = ..., inputs: _Optional[_Union[_payload_pb2.Payload, _Mapping]] = ..., parent_step: _Optional[str] = ..., forked_from: _Optional[str] = ..., planned_calls: _Optional[_Iterable[_Union[PlannedCall, _Mapping]]] = ..., spent: _Optional[_Union[_budget_pb2.BudgetAmounts, _Mapping]] = ..., allotment: _Optional[_Union[_budget_pb2.BudgetAllotment, _Mapping]] = ..., made_folder: _Optional[str] = ..., dry_run: bool = ..., outputs: _Optional[_Union[_payload_pb2.Payload, _Mapping]] = ..., outputs_failure: _Optional[_Union[_failure_pb2.Failure, _Mapping]] = ..., limits: _Optional[_Iterable[_Union[_plan_pb2.ExecutionLimit, _Mapping]]] = ..., limit_state: _Optional[_Union[LimitState, str]] = ...) -> None: ...

class PlannedCall(_message.Message):
    __slots__ = ("step_id", "field", "tool", "arguments", "has_templates", "decision", "network")
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    TOOL_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    HAS_TEMPLATES_FIELD_NUMBER: _ClassVar[int]
    DECISION_FIELD_NUMBER: _ClassVar[int]
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    step_id: str
    field: str
    tool: str
    arguments: _payload_pb2.Payload
    has_templates: bool
    decision: _policy_pb2.PolicyDecision
    network: str
    def __init__(self, step_id: _Optional[str] = ..., field: _Optional[str] = ..., tool: _Optional[str] = ..., arguments: _Optional[_Union[_payload_pb2.Payload, _Mapping]] = ..., has_templates: bool = ..., decision: _Optional[_Union[_policy_pb2.PolicyDecision, _Mapping]] = ..., network: _Optional[str] = ...) -> None: ...

class StepTotals(_message.Message):
    __slots__ = ("total", "completed", "failed", "skipped", "cancelled")
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    total: int
    completed: int
    failed: int
    skipped: int
    cancelled: int
    def __init__(self, total: _Optional[int] = ..., completed: _Optional[int] = ..., failed: _Optional[int] = ..., skipped: _Optional[int] = ..., cancelled: _Optional[int] = ...) -> None: ...

class ToolStepDetail(_message.Message):
    __slots__ = ("tool",)
    TOOL_FIELD_NUMBER: _ClassVar[int]
    tool: str
    def __init__(self, tool: _Optional[str] = ...) -> None: ...

class CallsStepDetail(_message.Message):
    __slots__ = ("tools",)
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    tools: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, tools: _Optional[_Iterable[str]] = ...) -> None: ...

class PlanStepDetail(_message.Message):
    __slots__ = ("execution", "plan_id")
    EXECUTION_FIELD_NUMBER: _ClassVar[int]
    PLAN_ID_FIELD_NUMBER: _ClassVar[int]
    execution: str
    plan_id: str
    def __init__(self, execution: _Optional[str] = ..., plan_id: _Optional[str] = ...) -> None: ...

class AgentStepDetail(_message.Message):
    __slots__ = ("model", "turns", "max_turns")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TURNS_FIELD_NUMBER: _ClassVar[int]
    MAX_TURNS_FIELD_NUMBER: _ClassVar[int]
    model: str
    turns: int
    max_turns: int
    def __init__(self, model: _Optional[str] = ..., turns: _Optional[int] = ..., max_turns: _Optional[int] = ...) -> None: ...

class WaitStepDetail(_message.Message):
    __slots__ = ("signal", "until_time", "form")
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    UNTIL_TIME_FIELD_NUMBER: _ClassVar[int]
    FORM_FIELD_NUMBER: _ClassVar[int]
    signal: str
    until_time: _timestamp_pb2.Timestamp
    form: str
    def __init__(self, signal: _Optional[str] = ..., until_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., form: _Optional[str] = ...) -> None: ...

class Step(_message.Message):
    __slots__ = ("name", "step_id", "title", "state", "attempt", "max_attempts", "start_time", "end_time", "output", "output_bytes", "failure", "skip_reason", "skipped_because", "waiting", "tool", "wait", "plan", "calls", "agent", "approvals", "failed_attempts", "authorization", "approval_wait", "item", "item_count", "compensates", "cached_result", "spent", "skipped_group")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATE_UNSPECIFIED: _ClassVar[Step.State]
        STATE_PENDING: _ClassVar[Step.State]
        STATE_READY: _ClassVar[Step.State]
        STATE_RUNNING: _ClassVar[Step.State]
        STATE_AWAITING_APPROVAL: _ClassVar[Step.State]
        STATE_BACKING_OFF: _ClassVar[Step.State]
        STATE_OUTCOME_UNKNOWN: _ClassVar[Step.State]
        STATE_COMPLETED: _ClassVar[Step.State]
        STATE_FAILED: _ClassVar[Step.State]
        STATE_SKIPPED: _ClassVar[Step.State]
        STATE_CANCELLED: _ClassVar[Step.State]
        STATE_WAITING: _ClassVar[Step.State]
        STATE_COMPENSATING: _ClassVar[Step.State]
        STATE_COMPENSATED: _ClassVar[Step.State]
    STATE_UNSPECIFIED: Step.State
    STATE_PENDING: Step.State
    STATE_READY: Step.State
    STATE_RUNNING: Step.State
    STATE_AWAITING_APPROVAL: Step.State
    STATE_BACKING_OFF: Step.State
    STATE_OUTCOME_UNKNOWN: Step.State
    STATE_COMPLETED: Step.State
    STATE_FAILED: Step.State
    STATE_SKIPPED: Step.State
    STATE_CANCELLED: Step.State
    STATE_WAITING: Step.State
    STATE_COMPENSATING: Step.State
    STATE_COMPENSATED: Step.State
    NAME_FIELD_NUMBER: _ClassVar[int]
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    SKIP_REASON_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_BECAUSE_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    TOOL_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    APPROVALS_FIELD_NUMBER: _ClassVar[int]
    FAILED_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    AUTHORIZATION_FIELD_NUMBER: _ClassVar[int]
    APPROVAL_WAIT_FIELD_NUMBER: _ClassVar[int]
    ITEM_FIELD_NUMBER: _ClassVar[int]
    ITEM_COUNT_FIELD_NUMBER: _ClassVar[int]
    COMPENSATES_FIELD_NUMBER: _ClassVar[int]
    CACHED_RESULT_FIELD_NUMBER: _ClassVar[int]
    SPENT_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_GROUP_FIELD_NUMBER: _ClassVar[int]
    name: str
    step_id: str
    title: str
    state: Step.State
    attempt: int
    max_attempts: int
    start_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    output: _payload_pb2.Payload
    output_bytes: int
    failure: _failure_pb2.Failure
    skip_reason: SkipReason
    skipped_because: str
    waiting: _waiting_reason_pb2.WaitingReason
    tool: ToolStepDetail
    wait: WaitStepDetail
    plan: PlanStepDetail
    calls: CallsStepDetail
    agent: AgentStepDetail
    approvals: _containers.RepeatedScalarFieldContainer[str]
    failed_attempts: _containers.RepeatedCompositeFieldContainer[StepAttempt]
    authorization: Authorization
    approval_wait: _duration_pb2.Duration
    item: StepItem
    item_count: int
    compensates: str
    cached_result: _payload_pb2.CachedResult
    spent: _budget_pb2.BudgetAmounts
    skipped_group: str
    def __init__(self, name: _Optional[str] = ..., step_id: _Optional[str] = ..., title: _Optional[str] = ..., state: _Optional[_Union[Step.State, str]] = ..., attempt: _Optional[int] = ..., max_attempts: _Optional[int] = ..., start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., output: _Optional[_Union[_payload_pb2.Payload, _Mapping]] = ..., output_bytes: _Optional[int] = ..., failure: _Optional[_Union[_failure_pb2.Failure, _Mapping]] = ..., skip_reason: _Optional[_Union[SkipReason, str]] = ..., skipped_because: _Optional[str] = ..., waiting: _Optional[_Union[_waiting_reason_pb2.WaitingReason, _Mapping]] = ..., tool: _Optional[_Union[ToolStepDetail, _Mapping]] = ..., wait: _Optional[_Union[WaitStepDetail, _Mapping]] = ..., plan: _Optional[_Union[PlanStepDetail, _Mapping]] = ..., calls: _Optional[_Union[CallsStepDetail, _Mapping]] = ..., agent: _Optional[_Union[AgentStepDetail, _Mapping]] = ..., approvals: _Optional[_Iterable[str]] = ..., failed_attempts: _Optional[_Iterable[_Union[StepAttempt, _Mapping]]] = ..., authorization: _Optional[_Union[Authorization, _Mapping]] = ..., approval_wait: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., item: _Optional[_Union[StepItem, _Mapping]] = ..., item_count: _Optional[int] = ..., compensates: _Optional[str] = ..., cached_result: _Optional[_Union[_payload_pb2.CachedResult, _Mapping]] = ..., spent: _Optional[_Union[_budget_pb2.BudgetAmounts, _Mapping]] = ..., skipped_group: _Optional[str] = ...) -> None: ...

class StepItem(_message.Message):
    __slots__ = ("step_id", "index", "value")
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    step_id: str
    index: int
    value: _payload_pb2.Payload
    def __init__(self, step_id: _Optional[str] = ..., index: _Optional[int] = ..., value: _Optional[_Union[_payload_pb2.Payload, _Mapping]] = ...) -> None: ...

class StepAttempt(_message.Message):
    __slots__ = ("attempt", "failure", "end_time")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    attempt: int
    failure: _failure_pb2.Failure
    end_time: _timestamp_pb2.Timestamp
    def __init__(self, attempt: _Optional[int] = ..., failure: _Optional[_Union[_failure_pb2.Failure, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class Authorization(_message.Message):
    __slots__ = ("rule", "approver", "created", "modified", "deleted")
    RULE_FIELD_NUMBER: _ClassVar[int]
    APPROVER_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    MODIFIED_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    rule: str
    approver: str
    created: int
    modified: int
    deleted: int
    def __init__(self, rule: _Optional[str] = ..., approver: _Optional[str] = ..., created: _Optional[int] = ..., modified: _Optional[int] = ..., deleted: _Optional[int] = ...) -> None: ...
