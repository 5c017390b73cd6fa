import datetime

from belay.v1 import approval_pb2 as _approval_pb2
from belay.v1 import budget_pb2 as _budget_pb2
from belay.v1 import execution_pb2 as _execution_pb2
from belay.v1 import failure_pb2 as _failure_pb2
from belay.v1 import form_pb2 as _form_pb2
from belay.v1 import options_pb2 as _options_pb2
from belay.v1 import payload_pb2 as _payload_pb2
from belay.v1 import plan_pb2 as _plan_pb2
from belay.v1 import receipt_pb2 as _receipt_pb2
from belay.v1 import tool_call_pb2 as _tool_call_pb2
from belay.v1 import trace_context_pb2 as _trace_context_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ExecutionEvent(_message.Message):
    __slots__ = ("sequence", "record_time", "step_id", "attempt", "operation", "actor", "ephemeral", "safe_to_skip", "secrets", "execution_created", "execution_started", "execution_paused", "execution_resumed", "execution_cancel_requested", "execution_recovered", "execution_deadline_exceeded", "execution_finished", "execution_awaiting_approval", "signal_received", "execution_retried", "execution_plan_updated", "execution_compensation_started", "budget_warning", "budget_exceeded", "budget_overrun", "limits_requested", "limits_acquired", "step_started", "step_retry_scheduled", "step_completed", "step_failed", "step_skipped", "step_cancelled", "step_outcome_unknown", "step_resolved", "step_skip_requested", "step_output_set", "step_retry_advanced", "step_retry_cancelled", "step_fallback_switched", "step_cached_result_used", "step_items_listed", "step_items_collected", "step_conversation_carried_over", "wait_started", "wait_ended", "child_started", "child_created", "child_paused", "child_ended", "tool_call_requested", "tool_call_completed", "tool_call_failed", "tool_call_cancelled", "tool_call_outcome_unknown", "tool_call_effect_proposed", "tool_call_approval_required", "tool_call_denied", "tool_call_output", "tool_call_dispatched", "approval_requested", "approval_decided")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    RECORD_TIME_FIELD_NUMBER: _ClassVar[int]
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    EPHEMERAL_FIELD_NUMBER: _ClassVar[int]
    SAFE_TO_SKIP_FIELD_NUMBER: _ClassVar[int]
    SECRETS_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_CREATED_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_STARTED_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_PAUSED_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_RESUMED_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_CANCEL_REQUESTED_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_RECOVERED_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_DEADLINE_EXCEEDED_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_FINISHED_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_AWAITING_APPROVAL_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_RECEIVED_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_RETRIED_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_PLAN_UPDATED_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_COMPENSATION_STARTED_FIELD_NUMBER: _ClassVar[int]
    BUDGET_WARNING_FIELD_NUMBER: _ClassVar[int]
    BUDGET_EXCEEDED_FIELD_NUMBER: _ClassVar[int]
    BUDGET_OVERRUN_FIELD_NUMBER: _ClassVar[int]
    LIMITS_REQUESTED_FIELD_NUMBER: _ClassVar[int]
    LIMITS_ACQUIRED_FIELD_NUMBER: _ClassVar[int]
    STEP_STARTED_FIELD_NUMBER: _ClassVar[int]
    STEP_RETRY_SCHEDULED_FIELD_NUMBER: _ClassVar[int]
    STEP_COMPLETED_FIELD_NUMBER: _ClassVar[int]
    STEP_FAILED_FIELD_NUMBER: _ClassVar[int]
    STEP_SKIPPED_FIELD_NUMBER: _ClassVar[int]
    STEP_CANCELLED_FIELD_NUMBER: _ClassVar[int]
    STEP_OUTCOME_UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    STEP_RESOLVED_FIELD_NUMBER: _ClassVar[int]
    STEP_SKIP_REQUESTED_FIELD_NUMBER: _ClassVar[int]
    STEP_OUTPUT_SET_FIELD_NUMBER: _ClassVar[int]
    STEP_RETRY_ADVANCED_FIELD_NUMBER: _ClassVar[int]
    STEP_RETRY_CANCELLED_FIELD_NUMBER: _ClassVar[int]
    STEP_FALLBACK_SWITCHED_FIELD_NUMBER: _ClassVar[int]
    STEP_CACHED_RESULT_USED_FIELD_NUMBER: _ClassVar[int]
    STEP_ITEMS_LISTED_FIELD_NUMBER: _ClassVar[int]
    STEP_ITEMS_COLLECTED_FIELD_NUMBER: _ClassVar[int]
    STEP_CONVERSATION_CARRIED_OVER_FIELD_NUMBER: _ClassVar[int]
    WAIT_STARTED_FIELD_NUMBER: _ClassVar[int]
    WAIT_ENDED_FIELD_NUMBER: _ClassVar[int]
    CHILD_STARTED_FIELD_NUMBER: _ClassVar[int]
    CHILD_CREATED_FIELD_NUMBER: _ClassVar[int]
    CHILD_PAUSED_FIELD_NUMBER: _ClassVar[int]
    CHILD_ENDED_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_REQUESTED_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_COMPLETED_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_FAILED_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_CANCELLED_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_OUTCOME_UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_EFFECT_PROPOSED_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_APPROVAL_REQUIRED_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_DENIED_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_DISPATCHED_FIELD_NUMBER: _ClassVar[int]
    APPROVAL_REQUESTED_FIELD_NUMBER: _ClassVar[int]
    APPROVAL_DECIDED_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    record_time: _timestamp_pb2.Timestamp
    step_id: str
    attempt: int
    operation: int
    actor: Actor
    ephemeral: bool
    safe_to_skip: bool
    secrets: _containers.RepeatedScalarFieldContainer[str]
    execution_created: ExecutionCreated
    execution_started: ExecutionStarted
    execution_paused: ExecutionPaused
    execution_resumed: ExecutionResumed
    execution_cancel_requested: ExecutionCancelRequested
    execution_recovered: ExecutionRecovered
    execution_deadline_exceeded: ExecutionDeadlineExceeded
    execution_finished: ExecutionFinished
    execution_awaiting_approval: ExecutionAwaitingApproval
    signal_received: SignalReceived
    execution_retried: ExecutionRetried
    execution_plan_updated: ExecutionPlanUpdated
    execution_compensation_started: ExecutionCompensationStarted
    budget_warning: _budget_pb2.BudgetReport
    budget_exceeded: _budget_pb2.BudgetReport
    budget_overrun: _budget_pb2.BudgetReport
    limits_requested: LimitsRequested
    limits_acquired: LimitsAcquired
    step_started: StepStarted
    step_retry_scheduled: StepRetryScheduled
    step_completed: StepCompleted
    step_failed: StepFailed
    step_skipped: StepSkipped
    step_cancelled: StepCancelled
    step_outcome_unknown: StepOutcomeUnknown
    step_resolved: StepResolved
    step_skip_requested: StepSkipRequested
    step_output_set: StepOutputSet
    step_retry_advanced: StepRetryAdvanced
    step_retry_cancelled: StepRetryCancelled
    step_fallback_switched: StepFallbackSwitched
    step_cached_result_used: StepCachedResultUsed
    step_items_listed: StepItemsListed
    step_items_collected: StepItemsCollected
    step_conversation_carried_over: StepConversationCarriedOver
    wait_started: WaitStarted
    wait_ended: WaitEnded
    child_started: ChildStarted
    child_created: ChildCreated
    child_paused: ChildPaused
    child_ended: ChildEnded
    tool_call_requested: ToolCallRequested
    tool_call_completed: ToolCallCompleted
    tool_call_failed: ToolCallFailed
    tool_call_cancelled: ToolCallCancelled
    tool_call_outcome_unknown: ToolCallOutcomeUnknown
    tool_call_effect_proposed: ToolCallEffectProposed
    tool_call_approval_required: ToolCallApprovalRequired
    tool_call_denied: ToolCallDenied
    tool_call_output: _tool_call_pb2.ToolCallOutput
    tool_call_dispatched: ToolCallDispatched
    approval_requested: ApprovalRequested
    approval_decided: ApprovalDecided
    def __init__(self, sequence: _Optional[int] = ..., record_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., step_id: _Optional[str] = ..., attempt: _Optional[int] = ..., operation: _Optional[int] = ..., actor: _Optional[_Union[Actor, _Mapping]] = ..., ephemeral: bool = ..., safe_to_skip: bool = ..., secrets: _Optional[_Iterable[str]] = ..., execution_created: _Optional[_Union[ExecutionCreated, _Mapping]] = ..., execution_started: _Optional[_Union[ExecutionStarted, _Mapping]] = ..., execution_paused: _Optional[_Union[ExecutionPaused, _Mapping]] = ..., execution_resumed: _Optional[_Union[ExecutionResumed, _Mapping]] = ..., execution_cancel_requested: _Optional[_Union[ExecutionCancelRequested, _Mapping]] = ..., execution_recovered: _Optional[_Union[ExecutionRecovered, _Mapping]] = ..., execution_deadline_exceeded: _Optional[_Union[ExecutionDeadlineExceeded, _Mapping]] = ..., execution_finished: _Optional[_Union[ExecutionFinished, _Mapping]] = ..., execution_awaiting_approval: _Optional[_Union[ExecutionAwaitingApproval, _Mapping]] = ..., signal_received: _Optional[_Union[SignalReceived, _Mapping]] = ..., execution_retried: _Optional[_Union[ExecutionRetried, _Mapping]] = ..., execution_plan_updated: _Optional[_Union[ExecutionPlanUpdated, _Mapping]] = ..., execution_compensation_started: _Optional[_Union[ExecutionCompensationStarted, _Mapping]] = ..., budget_warning: _Optional[_Union[_budget_pb2.BudgetReport, _Mapping]] = ..., budget_exceeded: _Optional[_Union[_budget_pb2.BudgetReport, _Mapping]] = ..., budget_overrun: _Optional[_Union[_budget_pb2.BudgetReport, _Mapping]] = ..., limits_requested: _Optional[_Union[LimitsRequested, _Mapping]] = ..., limits_acquired: _Optional[_Union[LimitsAcquired, _Mapping]] = ..., step_started: _Optional[_Union[StepStarted, _Mapping]] = ..., step_retry_scheduled: _Optional[_Union[StepRetryScheduled, _Mapping]] = ..., step_completed: _Optional[_Union[StepCompleted, _Mapping]] = ..., step_failed: _Optional[_Union[StepFailed, _Mapping]] = ..., step_skipped: _Optional[_Union[StepSkipped, _Mapping]] = ..., step_cancelled: _Optional[_Union[StepCancelled, _Mapping]] = ..., step_outcome_unknown: _Optional[_Union[StepOutcomeUnknown, _Mapping]] = ..., step_resolved: _Optional[_Union[StepResolved, _Mapping]] = ..., step_skip_requested: _Optional[_Union[StepSkipRequested, _Mapping]] = ..., step_output_set: _Optional[_Union[StepOutputSet, _Mapping]] = ..., step_retry_advanced: _Optional[_Union[StepRetryAdvanced, _Mapping]] = ..., step_retry_cancelled: _Optional[_Union[StepRetryCancelled, _Mapping]] = ..., step_fallback_switched: _Optional[_Union[StepFallbackSwitched, _Mapping]] = ..., step_cached_result_used: _Optional[_Union[StepCachedResultUsed, _Mapping]] = ..., step_items_listed: _Optional[_Union[StepItemsListed, _Mapping]] = ..., step_items_collected: _Optional[_Union[StepItemsCollected, _Mapping]] = ..., step_conversation_carried_over: _Optional[_Union[StepConversationCarriedOver, _Mapping]] = ..., wait_started: _Optional[_Union[WaitStarted, _Mapping]] = ..., wait_ended: _Optional[_Union[WaitEnded, _Mapping]] = ..., child_started: _Optional[_Union[ChildStarted, _Mapping]] = ..., child_created: _Optional[_Union[ChildCreated, _Mapping]] = ..., child_paused: _Optional[_Union[ChildPaused, _Mapping]] = ..., child_ended: _Optional[_Union[ChildEnded, _Mapping]] = ..., tool_call_requested: _Optional[_Union[ToolCallRequested, _Mapping]] = ..., tool_call_completed: _Optional[_Union[ToolCallCompleted, _Mapping]] = ..., tool_call_failed: _Optional[_Union[ToolCallFailed, _Mapping]] = ..., tool_call_cancelled: _Optional[_Union[ToolCallCancelled, _Mapping]] = ..., tool_call_outcome_unknown: _Optional[_Union[ToolCallOutcomeUnknown, _Mapping]] = ..., tool_call_effect_proposed: _Optional[_Union[ToolCallEffectProposed, _Mapping]] = ..., tool_call_approval_required: _Optional[_Union[ToolCallApprovalRequired, _Mapping]] = ..., tool_call_denied: _Optional[_Union[ToolCallDenied, _Mapping]] = ..., tool_call_output: _Optional[_Union[_tool_call_pb2.ToolCallOutput, _Mapping]] = ..., tool_call_dispatched: _Optional[_Union[ToolCallDispatched, _Mapping]] = ..., approval_requested: _Optional[_Union[ApprovalRequested, _Mapping]] = ..., approval_decided: _Optional[_Union[ApprovalDecided, _Mapping]] = ...) -> None: ...

class Actor(_message.Message):
    __slots__ = ("principal", "request_id")
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    principal: str
    request_id: str
    def __init__(self, principal: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("done", "total")
    DONE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    done: int
    total: int
    def __init__(self, done: _Optional[int] = ..., total: _Optional[int] = ...) -> None: ...

class ExecutionCreated(_message.Message):
    __slots__ = ("uid", "plan", "approval_mode", "workspace", "labels", "deadline_time", "trace", "inputs", "start_time", "parent_step", "forked_from", "made_folder", "allotment", "spent", "limits")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    UID_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    APPROVAL_MODE_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_TIME_FIELD_NUMBER: _ClassVar[int]
    TRACE_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    PARENT_STEP_FIELD_NUMBER: _ClassVar[int]
    FORKED_FROM_FIELD_NUMBER: _ClassVar[int]
    MADE_FOLDER_FIELD_NUMBER: _ClassVar[int]
    ALLOTMENT_FIELD_NUMBER: _ClassVar[int]
    SPENT_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    uid: str
    plan: _plan_pb2.Plan
    approval_mode: _execution_pb2.ApprovalMode
    workspace: str
    labels: _containers.ScalarMap[str, str]
    deadline_time: _timestamp_pb2.Timestamp
    trace: _trace_context_pb2.TraceContext
    inputs: _payload_pb2.Payload
    start_time: _timestamp_pb2.Timestamp
    parent_step: str
    forked_from: str
    made_folder: str
    allotment: _budget_pb2.BudgetAllotment
    spent: _budget_pb2.BudgetAmounts
    limits: _containers.RepeatedCompositeFieldContainer[_plan_pb2.ExecutionLimit]
    def __init__(self, uid: _Optional[str] = ..., plan: _Optional[_Union[_plan_pb2.Plan, _Mapping]] = ..., approval_mode: _Optional[_Union[_execution_pb2.ApprovalMode, str]] = ..., workspace: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., deadline_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., trace: _Optional[_Union[_trace_context_pb2.TraceContext, _Mapping]] = ..., inputs: _Optional[_Union[_payload_pb2.Payload, _Mapping]] = ..., start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., parent_step: _Optional[str] = ..., forked_from: _Optional[str] = ..., made_folder: _Optional[str] = ..., allotment: _Optional[_Union[_budget_pb2.BudgetAllotment, _Mapping]] = ..., spent: _Optional[_Union[_budget_pb2.BudgetAmounts, _Mapping]] = ..., limits: _Optional[_Iterable[_Union[_plan_pb2.ExecutionLimit, _Mapping]]] = ...) -> None: ...

class LimitsRequested(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LimitsAcquired(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ExecutionStarted(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ExecutionPaused(_message.Message):
    __slots__ = ("reason", "discard_calls", "resume_time", "by_budget", "next_stage")
    REASON_FIELD_NUMBER: _ClassVar[int]
    DISCARD_CALLS_FIELD_NUMBER: _ClassVar[int]
    RESUME_TIME_FIELD_NUMBER: _ClassVar[int]
    BY_BUDGET_FIELD_NUMBER: _ClassVar[int]
    NEXT_STAGE_FIELD_NUMBER: _ClassVar[int]
    reason: str
    discard_calls: bool
    resume_time: _timestamp_pb2.Timestamp
    by_budget: bool
    next_stage: str
    def __init__(self, reason: _Optional[str] = ..., discard_calls: bool = ..., resume_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., by_budget: bool = ..., next_stage: _Optional[str] = ...) -> None: ...

class ExecutionResumed(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ExecutionCancelRequested(_message.Message):
    __slots__ = ("reason", "kill")
    REASON_FIELD_NUMBER: _ClassVar[int]
    KILL_FIELD_NUMBER: _ClassVar[int]
    reason: str
    kill: bool
    def __init__(self, reason: _Optional[str] = ..., kill: bool = ...) -> None: ...

class ExecutionRecovered(_message.Message):
    __slots__ = ("in_doubt",)
    IN_DOUBT_FIELD_NUMBER: _ClassVar[int]
    in_doubt: _containers.RepeatedCompositeFieldContainer[OperationRef]
    def __init__(self, in_doubt: _Optional[_Iterable[_Union[OperationRef, _Mapping]]] = ...) -> None: ...

class OperationRef(_message.Message):
    __slots__ = ("step_id", "attempt", "operation")
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    step_id: str
    attempt: int
    operation: int
    def __init__(self, step_id: _Optional[str] = ..., attempt: _Optional[int] = ..., operation: _Optional[int] = ...) -> None: ...

class StepResolved(_message.Message):
    __slots__ = ("resolution", "result", "reason")
    RESOLUTION_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    resolution: _execution_pb2.StepResolution
    result: _payload_pb2.Payload
    reason: str
    def __init__(self, resolution: _Optional[_Union[_execution_pb2.StepResolution, str]] = ..., result: _Optional[_Union[_payload_pb2.Payload, _Mapping]] = ..., reason: _Optional[str] = ...) -> None: ...

class ExecutionRetried(_message.Message):
    __slots__ = ("step_ids", "from_step", "skip_failed", "start_paused", "plan_digest", "reason", "deadline_time", "escalation")
    STEP_IDS_FIELD_NUMBER: _ClassVar[int]
    FROM_STEP_FIELD_NUMBER: _ClassVar[int]
    SKIP_FAILED_FIELD_NUMBER: _ClassVar[int]
    START_PAUSED_FIELD_NUMBER: _ClassVar[int]
    PLAN_DIGEST_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_TIME_FIELD_NUMBER: _ClassVar[int]
    ESCALATION_FIELD_NUMBER: _ClassVar[int]
    step_ids: _containers.RepeatedScalarFieldContainer[str]
    from_step: str
    skip_failed: bool
    start_paused: bool
    plan_digest: str
    reason: str
    deadline_time: _timestamp_pb2.Timestamp
    escalation: EscalationRetry
    def __init__(self, step_ids: _Optional[_Iterable[str]] = ..., from_step: _Optional[str] = ..., skip_failed: bool = ..., start_paused: bool = ..., plan_digest: _Optional[str] = ..., reason: _Optional[str] = ..., deadline_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., escalation: _Optional[_Union[EscalationRetry, _Mapping]] = ...) -> None: ...

class EscalationRetry(_message.Message):
    __slots__ = ("number", "retries", "resume_time")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    RETRIES_FIELD_NUMBER: _ClassVar[int]
    RESUME_TIME_FIELD_NUMBER: _ClassVar[int]
    number: int
    retries: int
    resume_time: _timestamp_pb2.Timestamp
    def __init__(self, number: _Optional[int] = ..., retries: _Optional[int] = ..., resume_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ExecutionPlanUpdated(_message.Message):
    __slots__ = ("plan", "revision", "reason", "deadline_time")
    PLAN_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_TIME_FIELD_NUMBER: _ClassVar[int]
    plan: _plan_pb2.Plan
    revision: int
    reason: str
    deadline_time: _timestamp_pb2.Timestamp
    def __init__(self, plan: _Optional[_Union[_plan_pb2.Plan, _Mapping]] = ..., revision: _Optional[int] = ..., reason: _Optional[str] = ..., deadline_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class StepSkipRequested(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class StepOutputSet(_message.Message):
    __slots__ = ("output", "reason")
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    output: _payload_pb2.Payload
    reason: str
    def __init__(self, output: _Optional[_Union[_payload_pb2.Payload, _Mapping]] = ..., reason: _Optional[str] = ...) -> None: ...

class StepConversationCarriedOver(_message.Message):
    __slots__ = ("conversation", "turns", "layers", "spent", "reason")
    CONVERSATION_FIELD_NUMBER: _ClassVar[int]
    TURNS_FIELD_NUMBER: _ClassVar[int]
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    SPENT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    conversation: _payload_pb2.Payload
    turns: int
    layers: _receipt_pb2.CarriedLayers
    spent: _budget_pb2.BudgetAmounts
    reason: str
    def __init__(self, conversation: _Optional[_Union[_payload_pb2.Payload, _Mapping]] = ..., turns: _Optional[int] = ..., layers: _Optional[_Union[_receipt_pb2.CarriedLayers, _Mapping]] = ..., spent: _Optional[_Union[_budget_pb2.BudgetAmounts, _Mapping]] = ..., reason: _Optional[str] = ...) -> None: ...

class StepRetryAdvanced(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class StepRetryCancelled(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class SignalReceived(_message.Message):
    __slots__ = ("signal", "payload")
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    signal: str
    payload: _payload_pb2.Payload
    def __init__(self, signal: _Optional[str] = ..., payload: _Optional[_Union[_payload_pb2.Payload, _Mapping]] = ...) -> None: ...

class ExecutionDeadlineExceeded(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ExecutionFinished(_message.Message):
    __slots__ = ("state", "totals", "failure", "next_stage", "duration", "outputs", "outputs_failure")
    STATE_FIELD_NUMBER: _ClassVar[int]
    TOTALS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    NEXT_STAGE_FIELD_NUMBER: _ClassVar[int]
    DURATION_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FAILURE_FIELD_NUMBER: _ClassVar[int]
    state: _execution_pb2.Execution.State
    totals: _execution_pb2.StepTotals
    failure: _failure_pb2.Failure
    next_stage: str
    duration: _duration_pb2.Duration
    outputs: _payload_pb2.Payload
    outputs_failure: _failure_pb2.Failure
    def __init__(self, state: _Optional[_Union[_execution_pb2.Execution.State, str]] = ..., totals: _Optional[_Union[_execution_pb2.StepTotals, _Mapping]] = ..., failure: _Optional[_Union[_failure_pb2.Failure, _Mapping]] = ..., next_stage: _Optional[str] = ..., duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., outputs: _Optional[_Union[_payload_pb2.Payload, _Mapping]] = ..., outputs_failure: _Optional[_Union[_failure_pb2.Failure, _Mapping]] = ...) -> None: ...

class StepStarted(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StepRetryScheduled(_message.Message):
    __slots__ = ("failure", "retry_count", "delay", "retry_time")
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    RETRY_COUNT_FIELD_NUMBER: _ClassVar[int]
    DELAY_FIELD_NUMBER: _ClassVar[int]
    RETRY_TIME_FIELD_NUMBER: _ClassVar[int]
    failure: _failure_pb2.Failure
    retry_count: int
    delay: _duration_pb2.Duration
    retry_time: _timestamp_pb2.Timestamp
    def __init__(self, failure: _Optional[_Union[_failure_pb2.Failure, _Mapping]] = ..., retry_count: _Optional[int] = ..., delay: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., retry_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ExecutionCompensationStarted(_message.Message):
    __slots__ = ("step_ids",)
    STEP_IDS_FIELD_NUMBER: _ClassVar[int]
    step_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, step_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class StepFallbackSwitched(_message.Message):
    __slots__ = ("failure", "failed_tool", "fallback_tool", "reason")
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    FAILED_TOOL_FIELD_NUMBER: _ClassVar[int]
    FALLBACK_TOOL_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    failure: _failure_pb2.Failure
    failed_tool: str
    fallback_tool: str
    reason: str
    def __init__(self, failure: _Optional[_Union[_failure_pb2.Failure, _Mapping]] = ..., failed_tool: _Optional[str] = ..., fallback_tool: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class StepCachedResultUsed(_message.Message):
    __slots__ = ("failure", "result", "source")
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    failure: _failure_pb2.Failure
    result: _payload_pb2.Payload
    source: _payload_pb2.CachedResult
    def __init__(self, failure: _Optional[_Union[_failure_pb2.Failure, _Mapping]] = ..., result: _Optional[_Union[_payload_pb2.Payload, _Mapping]] = ..., source: _Optional[_Union[_payload_pb2.CachedResult, _Mapping]] = ...) -> None: ...

class StepItemsListed(_message.Message):
    __slots__ = ("items", "first")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[_payload_pb2.Payload]
    first: int
    def __init__(self, items: _Optional[_Iterable[_Union[_payload_pb2.Payload, _Mapping]]] = ..., first: _Optional[int] = ...) -> None: ...

class StepItemsCollected(_message.Message):
    __slots__ = ("output",)
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    output: _payload_pb2.Payload
    def __init__(self, output: _Optional[_Union[_payload_pb2.Payload, _Mapping]] = ...) -> None: ...

class StepCompleted(_message.Message):
    __slots__ = ("progress", "duration")
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    DURATION_FIELD_NUMBER: _ClassVar[int]
    progress: Progress
    duration: _duration_pb2.Duration
    def __init__(self, progress: _Optional[_Union[Progress, _Mapping]] = ..., duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class StepFailed(_message.Message):
    __slots__ = ("failure", "attempts", "progress")
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    failure: _failure_pb2.Failure
    attempts: int
    progress: Progress
    def __init__(self, failure: _Optional[_Union[_failure_pb2.Failure, _Mapping]] = ..., attempts: _Optional[int] = ..., progress: _Optional[_Union[Progress, _Mapping]] = ...) -> None: ...

class StepSkipped(_message.Message):
    __slots__ = ("reason", "because", "progress", "group")
    REASON_FIELD_NUMBER: _ClassVar[int]
    BECAUSE_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    reason: _execution_pb2.SkipReason
    because: str
    progress: Progress
    group: str
    def __init__(self, reason: _Optional[_Union[_execution_pb2.SkipReason, str]] = ..., because: _Optional[str] = ..., progress: _Optional[_Union[Progress, _Mapping]] = ..., group: _Optional[str] = ...) -> None: ...

class StepCancelled(_message.Message):
    __slots__ = ("progress",)
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    progress: Progress
    def __init__(self, progress: _Optional[_Union[Progress, _Mapping]] = ...) -> None: ...

class StepOutcomeUnknown(_message.Message):
    __slots__ = ("failure",)
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    failure: _failure_pb2.Failure
    def __init__(self, failure: _Optional[_Union[_failure_pb2.Failure, _Mapping]] = ...) -> None: ...

class WaitStarted(_message.Message):
    __slots__ = ("signal", "until_time", "form", "subject_digest", "asking_call", "question", "may_hold_for_execution")
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    UNTIL_TIME_FIELD_NUMBER: _ClassVar[int]
    FORM_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_DIGEST_FIELD_NUMBER: _ClassVar[int]
    ASKING_CALL_FIELD_NUMBER: _ClassVar[int]
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    MAY_HOLD_FOR_EXECUTION_FIELD_NUMBER: _ClassVar[int]
    signal: str
    until_time: _timestamp_pb2.Timestamp
    form: _form_pb2.Form
    subject_digest: str
    asking_call: int
    question: str
    may_hold_for_execution: bool
    def __init__(self, signal: _Optional[str] = ..., until_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., form: _Optional[_Union[_form_pb2.Form, _Mapping]] = ..., subject_digest: _Optional[str] = ..., asking_call: _Optional[int] = ..., question: _Optional[str] = ..., may_hold_for_execution: bool = ...) -> None: ...

class WaitEnded(_message.Message):
    __slots__ = ("cause", "signal_sequence", "answer", "decision", "reason", "answer_sequence")
    class Cause(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        CAUSE_UNSPECIFIED: _ClassVar[WaitEnded.Cause]
        CAUSE_ELAPSED: _ClassVar[WaitEnded.Cause]
        CAUSE_SIGNALLED: _ClassVar[WaitEnded.Cause]
        CAUSE_TIMED_OUT: _ClassVar[WaitEnded.Cause]
        CAUSE_CANCELLED: _ClassVar[WaitEnded.Cause]
        CAUSE_ANSWERED: _ClassVar[WaitEnded.Cause]
        CAUSE_DECLINED: _ClassVar[WaitEnded.Cause]
        CAUSE_REFUSED: _ClassVar[WaitEnded.Cause]
        CAUSE_HELD: _ClassVar[WaitEnded.Cause]
    CAUSE_UNSPECIFIED: WaitEnded.Cause
    CAUSE_ELAPSED: WaitEnded.Cause
    CAUSE_SIGNALLED: WaitEnded.Cause
    CAUSE_TIMED_OUT: WaitEnded.Cause
    CAUSE_CANCELLED: WaitEnded.Cause
    CAUSE_ANSWERED: WaitEnded.Cause
    CAUSE_DECLINED: WaitEnded.Cause
    CAUSE_REFUSED: WaitEnded.Cause
    CAUSE_HELD: WaitEnded.Cause
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    DECISION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ANSWER_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    cause: WaitEnded.Cause
    signal_sequence: int
    answer: _payload_pb2.Payload
    decision: _approval_pb2.Decision
    reason: str
    answer_sequence: int
    def __init__(self, cause: _Optional[_Union[WaitEnded.Cause, str]] = ..., signal_sequence: _Optional[int] = ..., answer: _Optional[_Union[_payload_pb2.Payload, _Mapping]] = ..., decision: _Optional[_Union[_approval_pb2.Decision, str]] = ..., reason: _Optional[str] = ..., answer_sequence: _Optional[int] = ...) -> None: ...

class ChildStarted(_message.Message):
    __slots__ = ("execution_id", "inputs", "deadline_time", "allotment")
    EXECUTION_ID_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_TIME_FIELD_NUMBER: _ClassVar[int]
    ALLOTMENT_FIELD_NUMBER: _ClassVar[int]
    execution_id: str
    inputs: _payload_pb2.Payload
    deadline_time: _timestamp_pb2.Timestamp
    allotment: _budget_pb2.BudgetAllotment
    def __init__(self, execution_id: _Optional[str] = ..., inputs: _Optional[_Union[_payload_pb2.Payload, _Mapping]] = ..., deadline_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., allotment: _Optional[_Union[_budget_pb2.BudgetAllotment, _Mapping]] = ...) -> None: ...

class ChildCreated(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ChildPaused(_message.Message):
    __slots__ = ("resumed",)
    RESUMED_FIELD_NUMBER: _ClassVar[int]
    resumed: bool
    def __init__(self, resumed: bool = ...) -> None: ...

class ChildEnded(_message.Message):
    __slots__ = ("output", "failure", "cancelled", "spent")
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    SPENT_FIELD_NUMBER: _ClassVar[int]
    output: _payload_pb2.Payload
    failure: _failure_pb2.Failure
    cancelled: ChildCancelled
    spent: _budget_pb2.BudgetAmounts
    def __init__(self, output: _Optional[_Union[_payload_pb2.Payload, _Mapping]] = ..., failure: _Optional[_Union[_failure_pb2.Failure, _Mapping]] = ..., cancelled: _Optional[_Union[ChildCancelled, _Mapping]] = ..., spent: _Optional[_Union[_budget_pb2.BudgetAmounts, _Mapping]] = ...) -> None: ...

class ChildCancelled(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ToolCallDispatched(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ToolCallRequested(_message.Message):
    __slots__ = ("tool", "arguments", "arguments_digest", "ledger_id", "timeout", "check", "held", "layers", "namespace_hold")
    TOOL_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    CHECK_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_HOLD_FIELD_NUMBER: _ClassVar[int]
    tool: str
    arguments: _payload_pb2.Payload
    arguments_digest: str
    ledger_id: str
    timeout: _duration_pb2.Duration
    check: CheckPlace
    held: _budget_pb2.BudgetAmounts
    layers: _receipt_pb2.StepLayers
    namespace_hold: _budget_pb2.NamespaceHold
    def __init__(self, tool: _Optional[str] = ..., arguments: _Optional[_Union[_payload_pb2.Payload, _Mapping]] = ..., arguments_digest: _Optional[str] = ..., ledger_id: _Optional[str] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., check: _Optional[_Union[CheckPlace, _Mapping]] = ..., held: _Optional[_Union[_budget_pb2.BudgetAmounts, _Mapping]] = ..., layers: _Optional[_Union[_receipt_pb2.StepLayers, _Mapping]] = ..., namespace_hold: _Optional[_Union[_budget_pb2.NamespaceHold, _Mapping]] = ...) -> None: ...

class CheckPlace(_message.Message):
    __slots__ = ("when", "position")
    class When(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        WHEN_UNSPECIFIED: _ClassVar[CheckPlace.When]
        WHEN_BEFORE: _ClassVar[CheckPlace.When]
        WHEN_AFTER: _ClassVar[CheckPlace.When]
    WHEN_UNSPECIFIED: CheckPlace.When
    WHEN_BEFORE: CheckPlace.When
    WHEN_AFTER: CheckPlace.When
    WHEN_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    when: CheckPlace.When
    position: int
    def __init__(self, when: _Optional[_Union[CheckPlace.When, str]] = ..., position: _Optional[int] = ...) -> None: ...

class ToolCallCompleted(_message.Message):
    __slots__ = ("result", "receipt")
    RESULT_FIELD_NUMBER: _ClassVar[int]
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    result: _payload_pb2.Payload
    receipt: _receipt_pb2.Receipt
    def __init__(self, result: _Optional[_Union[_payload_pb2.Payload, _Mapping]] = ..., receipt: _Optional[_Union[_receipt_pb2.Receipt, _Mapping]] = ...) -> None: ...

class ToolCallFailed(_message.Message):
    __slots__ = ("failure", "receipt")
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    failure: _failure_pb2.Failure
    receipt: _receipt_pb2.Receipt
    def __init__(self, failure: _Optional[_Union[_failure_pb2.Failure, _Mapping]] = ..., receipt: _Optional[_Union[_receipt_pb2.Receipt, _Mapping]] = ...) -> None: ...

class ToolCallCancelled(_message.Message):
    __slots__ = ("failure", "grant_nonce")
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    GRANT_NONCE_FIELD_NUMBER: _ClassVar[int]
    failure: _failure_pb2.Failure
    grant_nonce: str
    def __init__(self, failure: _Optional[_Union[_failure_pb2.Failure, _Mapping]] = ..., grant_nonce: _Optional[str] = ...) -> None: ...

class ExecutionAwaitingApproval(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ToolCallEffectProposed(_message.Message):
    __slots__ = ("need",)
    NEED_FIELD_NUMBER: _ClassVar[int]
    need: _tool_call_pb2.ApprovalNeed
    def __init__(self, need: _Optional[_Union[_tool_call_pb2.ApprovalNeed, _Mapping]] = ...) -> None: ...

class ToolCallApprovalRequired(_message.Message):
    __slots__ = ("need",)
    NEED_FIELD_NUMBER: _ClassVar[int]
    need: _tool_call_pb2.ApprovalNeed
    def __init__(self, need: _Optional[_Union[_tool_call_pb2.ApprovalNeed, _Mapping]] = ...) -> None: ...

class ToolCallDenied(_message.Message):
    __slots__ = ("failure", "receipt")
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    failure: _failure_pb2.Failure
    receipt: _receipt_pb2.Receipt
    def __init__(self, failure: _Optional[_Union[_failure_pb2.Failure, _Mapping]] = ..., receipt: _Optional[_Union[_receipt_pb2.Receipt, _Mapping]] = ...) -> None: ...

class ApprovalRequested(_message.Message):
    __slots__ = ("approval", "subject_digest")
    APPROVAL_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_DIGEST_FIELD_NUMBER: _ClassVar[int]
    approval: str
    subject_digest: str
    def __init__(self, approval: _Optional[str] = ..., subject_digest: _Optional[str] = ...) -> None: ...

class ApprovalDecided(_message.Message):
    __slots__ = ("approval", "decision", "reason")
    APPROVAL_FIELD_NUMBER: _ClassVar[int]
    DECISION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    approval: str
    decision: _approval_pb2.Decision
    reason: str
    def __init__(self, approval: _Optional[str] = ..., decision: _Optional[_Union[_approval_pb2.Decision, str]] = ..., reason: _Optional[str] = ...) -> None: ...

class ToolCallOutcomeUnknown(_message.Message):
    __slots__ = ("failure", "grant_nonce", "network")
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    GRANT_NONCE_FIELD_NUMBER: _ClassVar[int]
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    failure: _failure_pb2.Failure
    grant_nonce: str
    network: _receipt_pb2.NetworkUse
    def __init__(self, failure: _Optional[_Union[_failure_pb2.Failure, _Mapping]] = ..., grant_nonce: _Optional[str] = ..., network: _Optional[_Union[_receipt_pb2.NetworkUse, _Mapping]] = ...) -> None: ...
