import datetime

from belay.v1 import execution_pb2 as _execution_pb2
from belay.v1 import failure_pb2 as _failure_pb2
from belay.v1 import options_pb2 as _options_pb2
from belay.v1 import plan_pb2 as _plan_pb2
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

class ExplainExecutionRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ExplainExecutionResponse(_message.Message):
    __slots__ = ("explanation", "children", "next_actions")
    EXPLANATION_FIELD_NUMBER: _ClassVar[int]
    CHILDREN_FIELD_NUMBER: _ClassVar[int]
    NEXT_ACTIONS_FIELD_NUMBER: _ClassVar[int]
    explanation: Explanation
    children: _containers.RepeatedCompositeFieldContainer[Explanation]
    next_actions: _containers.RepeatedCompositeFieldContainer[Action]
    def __init__(self, explanation: _Optional[_Union[Explanation, _Mapping]] = ..., children: _Optional[_Iterable[_Union[Explanation, _Mapping]]] = ..., next_actions: _Optional[_Iterable[_Union[Action, _Mapping]]] = ...) -> None: ...

class Explanation(_message.Message):
    __slots__ = ("execution", "causes", "left_out_causes", "changes", "left_out_changes", "skipped_steps", "left_out_skipped_steps")
    EXECUTION_FIELD_NUMBER: _ClassVar[int]
    CAUSES_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_CAUSES_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_CHANGES_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_STEPS_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_SKIPPED_STEPS_FIELD_NUMBER: _ClassVar[int]
    execution: _execution_pb2.Execution
    causes: _containers.RepeatedCompositeFieldContainer[Cause]
    left_out_causes: int
    changes: _containers.RepeatedCompositeFieldContainer[StepChange]
    left_out_changes: int
    skipped_steps: _containers.RepeatedCompositeFieldContainer[SkippedStep]
    left_out_skipped_steps: int
    def __init__(self, execution: _Optional[_Union[_execution_pb2.Execution, _Mapping]] = ..., causes: _Optional[_Iterable[_Union[Cause, _Mapping]]] = ..., left_out_causes: _Optional[int] = ..., changes: _Optional[_Iterable[_Union[StepChange, _Mapping]]] = ..., left_out_changes: _Optional[int] = ..., skipped_steps: _Optional[_Iterable[_Union[SkippedStep, _Mapping]]] = ..., left_out_skipped_steps: _Optional[int] = ...) -> None: ...

class Cause(_message.Message):
    __slots__ = ("kind", "step_id", "title", "attempt", "max_attempts", "spec", "tool", "subject", "begin_time", "until_time", "who", "failure", "failed_attempts", "decision", "principal", "reason", "actions")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[Cause.Kind]
        KIND_PAUSE: _ClassVar[Cause.Kind]
        KIND_FAULT: _ClassVar[Cause.Kind]
        KIND_NO_DRIVER: _ClassVar[Cause.Kind]
        KIND_SERVICE_AWAY: _ClassVar[Cause.Kind]
        KIND_CLOCK_DIFFERENCE: _ClassVar[Cause.Kind]
        KIND_SANDBOX_UNAVAILABLE: _ClassVar[Cause.Kind]
        KIND_APPROVAL: _ClassVar[Cause.Kind]
        KIND_FORM: _ClassVar[Cause.Kind]
        KIND_OUTCOME: _ClassVar[Cause.Kind]
        KIND_SIGNAL: _ClassVar[Cause.Kind]
        KIND_WORKSPACE_FULL: _ClassVar[Cause.Kind]
        KIND_WORKSPACE_READ_ONLY: _ClassVar[Cause.Kind]
        KIND_LIMIT: _ClassVar[Cause.Kind]
        KIND_BACKOFF: _ClassVar[Cause.Kind]
        KIND_TIME: _ClassVar[Cause.Kind]
        KIND_CHILD: _ClassVar[Cause.Kind]
        KIND_EXCLUSIVE_CALL: _ClassVar[Cause.Kind]
        KIND_CALL: _ClassVar[Cause.Kind]
        KIND_STEP_FAILURE: _ClassVar[Cause.Kind]
        KIND_STEP_CANCELLATION: _ClassVar[Cause.Kind]
        KIND_CANCELLATION: _ClassVar[Cause.Kind]
        KIND_TIME_LIMIT: _ClassVar[Cause.Kind]
        KIND_BUDGET: _ClassVar[Cause.Kind]
        KIND_EXECUTION_LIMIT: _ClassVar[Cause.Kind]
    KIND_UNSPECIFIED: Cause.Kind
    KIND_PAUSE: Cause.Kind
    KIND_FAULT: Cause.Kind
    KIND_NO_DRIVER: Cause.Kind
    KIND_SERVICE_AWAY: Cause.Kind
    KIND_CLOCK_DIFFERENCE: Cause.Kind
    KIND_SANDBOX_UNAVAILABLE: Cause.Kind
    KIND_APPROVAL: Cause.Kind
    KIND_FORM: Cause.Kind
    KIND_OUTCOME: Cause.Kind
    KIND_SIGNAL: Cause.Kind
    KIND_WORKSPACE_FULL: Cause.Kind
    KIND_WORKSPACE_READ_ONLY: Cause.Kind
    KIND_LIMIT: Cause.Kind
    KIND_BACKOFF: Cause.Kind
    KIND_TIME: Cause.Kind
    KIND_CHILD: Cause.Kind
    KIND_EXCLUSIVE_CALL: Cause.Kind
    KIND_CALL: Cause.Kind
    KIND_STEP_FAILURE: Cause.Kind
    KIND_STEP_CANCELLATION: Cause.Kind
    KIND_CANCELLATION: Cause.Kind
    KIND_TIME_LIMIT: Cause.Kind
    KIND_BUDGET: Cause.Kind
    KIND_EXECUTION_LIMIT: Cause.Kind
    KIND_FIELD_NUMBER: _ClassVar[int]
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    TOOL_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    BEGIN_TIME_FIELD_NUMBER: _ClassVar[int]
    UNTIL_TIME_FIELD_NUMBER: _ClassVar[int]
    WHO_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    FAILED_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    DECISION_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    kind: Cause.Kind
    step_id: str
    title: str
    attempt: int
    max_attempts: int
    spec: _plan_pb2.StepSpec
    tool: str
    subject: Subject
    begin_time: _timestamp_pb2.Timestamp
    until_time: _timestamp_pb2.Timestamp
    who: str
    failure: _failure_pb2.Failure
    failed_attempts: _containers.RepeatedCompositeFieldContainer[_execution_pb2.StepAttempt]
    decision: _policy_pb2.PolicyDecision
    principal: str
    reason: str
    actions: _containers.RepeatedCompositeFieldContainer[Action]
    def __init__(self, kind: _Optional[_Union[Cause.Kind, str]] = ..., step_id: _Optional[str] = ..., title: _Optional[str] = ..., attempt: _Optional[int] = ..., max_attempts: _Optional[int] = ..., spec: _Optional[_Union[_plan_pb2.StepSpec, _Mapping]] = ..., tool: _Optional[str] = ..., subject: _Optional[_Union[Subject, _Mapping]] = ..., begin_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., until_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., who: _Optional[str] = ..., failure: _Optional[_Union[_failure_pb2.Failure, _Mapping]] = ..., failed_attempts: _Optional[_Iterable[_Union[_execution_pb2.StepAttempt, _Mapping]]] = ..., decision: _Optional[_Union[_policy_pb2.PolicyDecision, _Mapping]] = ..., principal: _Optional[str] = ..., reason: _Optional[str] = ..., actions: _Optional[_Iterable[_Union[Action, _Mapping]]] = ...) -> None: ...

class Subject(_message.Message):
    __slots__ = ("approval", "form", "signal", "step_id", "service", "tool_call", "execution")
    class Service(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        SERVICE_UNSPECIFIED: _ClassVar[Subject.Service]
        SERVICE_EXECUTOR: _ClassVar[Subject.Service]
        SERVICE_TOOL_RUNNER: _ClassVar[Subject.Service]
        SERVICE_APPROVAL_GATE: _ClassVar[Subject.Service]
    SERVICE_UNSPECIFIED: Subject.Service
    SERVICE_EXECUTOR: Subject.Service
    SERVICE_TOOL_RUNNER: Subject.Service
    SERVICE_APPROVAL_GATE: Subject.Service
    APPROVAL_FIELD_NUMBER: _ClassVar[int]
    FORM_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_FIELD_NUMBER: _ClassVar[int]
    approval: str
    form: str
    signal: str
    step_id: str
    service: Subject.Service
    tool_call: str
    execution: str
    def __init__(self, approval: _Optional[str] = ..., form: _Optional[str] = ..., signal: _Optional[str] = ..., step_id: _Optional[str] = ..., service: _Optional[_Union[Subject.Service, str]] = ..., tool_call: _Optional[str] = ..., execution: _Optional[str] = ...) -> None: ...

class Action(_message.Message):
    __slots__ = ("verb", "execution", "subject")
    class Verb(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        VERB_UNSPECIFIED: _ClassVar[Action.Verb]
        VERB_APPROVE: _ClassVar[Action.Verb]
        VERB_DENY: _ClassVar[Action.Verb]
        VERB_ANSWER_FORM: _ClassVar[Action.Verb]
        VERB_SEND_SIGNAL: _ClassVar[Action.Verb]
        VERB_RESOLVE: _ClassVar[Action.Verb]
        VERB_RESUME: _ClassVar[Action.Verb]
        VERB_RETRY: _ClassVar[Action.Verb]
        VERB_EXPLAIN: _ClassVar[Action.Verb]
        VERB_START_SERVICE: _ClassVar[Action.Verb]
        VERB_RESTART_SERVICE: _ClassVar[Action.Verb]
        VERB_SET_CLOCK: _ClassVar[Action.Verb]
        VERB_FREE_SPACE: _ClassVar[Action.Verb]
        VERB_REMOUNT: _ClassVar[Action.Verb]
        VERB_RAISE_BUDGET: _ClassVar[Action.Verb]
    VERB_UNSPECIFIED: Action.Verb
    VERB_APPROVE: Action.Verb
    VERB_DENY: Action.Verb
    VERB_ANSWER_FORM: Action.Verb
    VERB_SEND_SIGNAL: Action.Verb
    VERB_RESOLVE: Action.Verb
    VERB_RESUME: Action.Verb
    VERB_RETRY: Action.Verb
    VERB_EXPLAIN: Action.Verb
    VERB_START_SERVICE: Action.Verb
    VERB_RESTART_SERVICE: Action.Verb
    VERB_SET_CLOCK: Action.Verb
    VERB_FREE_SPACE: Action.Verb
    VERB_REMOUNT: Action.Verb
    VERB_RAISE_BUDGET: Action.Verb
    VERB_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    verb: Action.Verb
    execution: str
    subject: Subject
    def __init__(self, verb: _Optional[_Union[Action.Verb, str]] = ..., execution: _Optional[str] = ..., subject: _Optional[_Union[Subject, _Mapping]] = ...) -> None: ...

class StepChange(_message.Message):
    __slots__ = ("step_id", "authorization")
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    AUTHORIZATION_FIELD_NUMBER: _ClassVar[int]
    step_id: str
    authorization: _execution_pb2.Authorization
    def __init__(self, step_id: _Optional[str] = ..., authorization: _Optional[_Union[_execution_pb2.Authorization, _Mapping]] = ...) -> None: ...

class SkippedStep(_message.Message):
    __slots__ = ("step_id", "skip_reason", "skipped_because", "follows_failure", "skipped_group")
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    SKIP_REASON_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_BECAUSE_FIELD_NUMBER: _ClassVar[int]
    FOLLOWS_FAILURE_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_GROUP_FIELD_NUMBER: _ClassVar[int]
    step_id: str
    skip_reason: _execution_pb2.SkipReason
    skipped_because: str
    follows_failure: bool
    skipped_group: str
    def __init__(self, step_id: _Optional[str] = ..., skip_reason: _Optional[_Union[_execution_pb2.SkipReason, str]] = ..., skipped_because: _Optional[str] = ..., follows_failure: bool = ..., skipped_group: _Optional[str] = ...) -> None: ...
