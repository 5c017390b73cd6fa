import datetime

from belay.v1 import audit_pb2 as _audit_pb2
from belay.v1 import budget_pb2 as _budget_pb2
from belay.v1 import failure_pb2 as _failure_pb2
from belay.v1 import form_pb2 as _form_pb2
from belay.v1 import options_pb2 as _options_pb2
from belay.v1 import payload_pb2 as _payload_pb2
from belay.v1 import retry_policy_pb2 as _retry_policy_pb2
from google.api import field_behavior_pb2 as _field_behavior_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WhenFull(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WHEN_FULL_UNSPECIFIED: _ClassVar[WhenFull]
    WHEN_FULL_WAIT: _ClassVar[WhenFull]
    WHEN_FULL_CANCEL_OLDER: _ClassVar[WhenFull]
    WHEN_FULL_REFUSE: _ClassVar[WhenFull]

class RecoveryStrategy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RECOVERY_STRATEGY_UNSPECIFIED: _ClassVar[RecoveryStrategy]
    RECOVERY_STRATEGY_USE_CACHE: _ClassVar[RecoveryStrategy]
    RECOVERY_STRATEGY_QUEUE_FOR_LATER: _ClassVar[RecoveryStrategy]
    RECOVERY_STRATEGY_COMPENSATE: _ClassVar[RecoveryStrategy]

class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OUTCOME_UNSPECIFIED: _ClassVar[Outcome]
    OUTCOME_SUCCESS: _ClassVar[Outcome]
    OUTCOME_FAILURE: _ClassVar[Outcome]
    OUTCOME_SKIPPED: _ClassVar[Outcome]

class RunWhen(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RUN_WHEN_UNSPECIFIED: _ClassVar[RunWhen]
    RUN_WHEN_SUCCESS: _ClassVar[RunWhen]
    RUN_WHEN_FAILURE: _ClassVar[RunWhen]
    RUN_WHEN_ALWAYS: _ClassVar[RunWhen]
    RUN_WHEN_NONE_FAILED: _ClassVar[RunWhen]

class PlanFormat(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PLAN_FORMAT_UNSPECIFIED: _ClassVar[PlanFormat]
    PLAN_FORMAT_YAML: _ClassVar[PlanFormat]
    PLAN_FORMAT_JSON: _ClassVar[PlanFormat]
WHEN_FULL_UNSPECIFIED: WhenFull
WHEN_FULL_WAIT: WhenFull
WHEN_FULL_CANCEL_OLDER: WhenFull
WHEN_FULL_REFUSE: WhenFull
RECOVERY_STRATEGY_UNSPECIFIED: RecoveryStrategy
RECOVERY_STRATEGY_USE_CACHE: RecoveryStrategy
RECOVERY_STRATEGY_QUEUE_FOR_LATER: RecoveryStrategy
RECOVERY_STRATEGY_COMPENSATE: RecoveryStrategy
OUTCOME_UNSPECIFIED: Outcome
OUTCOME_SUCCESS: Outcome
OUTCOME_FAILURE: Outcome
OUTCOME_SKIPPED: Outcome
RUN_WHEN_UNSPECIFIED: RunWhen
RUN_WHEN_SUCCESS: RunWhen
RUN_WHEN_FAILURE: RunWhen
RUN_WHEN_ALWAYS: RunWhen
RUN_WHEN_NONE_FAILED: RunWhen
PLAN_FORMAT_UNSPECIFIED: PlanFormat
PLAN_FORMAT_YAML: PlanFormat
PLAN_FORMAT_JSON: PlanFormat

class Plan(_message.Message):
    __slots__ = ("id", "description", "steps", "stop_on_error", "parallelism", "timeout", "inputs", "audit_level", "escalation", "resources", "allowed_commands", "labels", "dry_run", "on_error", "budget", "outputs", "limits", "network")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    STOP_ON_ERROR_FIELD_NUMBER: _ClassVar[int]
    PARALLELISM_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    AUDIT_LEVEL_FIELD_NUMBER: _ClassVar[int]
    ESCALATION_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    ALLOWED_COMMANDS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    ON_ERROR_FIELD_NUMBER: _ClassVar[int]
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    id: str
    description: str
    steps: _containers.RepeatedCompositeFieldContainer[StepSpec]
    stop_on_error: bool
    parallelism: int
    timeout: _duration_pb2.Duration
    inputs: _containers.RepeatedCompositeFieldContainer[PlanInput]
    audit_level: _audit_pb2.AuditLevel
    escalation: Escalation
    resources: _containers.RepeatedCompositeFieldContainer[PlanResource]
    allowed_commands: AllowedCommands
    labels: _containers.ScalarMap[str, str]
    dry_run: bool
    on_error: _containers.RepeatedCompositeFieldContainer[OnError]
    budget: _budget_pb2.Budget
    outputs: _payload_pb2.Payload
    limits: _containers.RepeatedCompositeFieldContainer[ExecutionLimit]
    network: str
    def __init__(self, id: _Optional[str] = ..., description: _Optional[str] = ..., steps: _Optional[_Iterable[_Union[StepSpec, _Mapping]]] = ..., stop_on_error: bool = ..., parallelism: _Optional[int] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., inputs: _Optional[_Iterable[_Union[PlanInput, _Mapping]]] = ..., audit_level: _Optional[_Union[_audit_pb2.AuditLevel, str]] = ..., escalation: _Optional[_Union[Escalation, _Mapping]] = ..., resources: _Optional[_Iterable[_Union[PlanResource, _Mapping]]] = ..., allowed_commands: _Optional[_Union[AllowedCommands, _Mapping]] = ..., labels: _Optional[_Mapping[str, str]] = ..., dry_run: bool = ..., on_error: _Optional[_Iterable[_Union[OnError, _Mapping]]] = ..., budget: _Optional[_Union[_budget_pb2.Budget, _Mapping]] = ..., outputs: _Optional[_Union[_payload_pb2.Payload, _Mapping]] = ..., limits: _Optional[_Iterable[_Union[ExecutionLimit, _Mapping]]] = ..., network: _Optional[str] = ...) -> None: ...

class ExecutionLimit(_message.Message):
    __slots__ = ("key", "at_once", "rate", "when_full")
    KEY_FIELD_NUMBER: _ClassVar[int]
    AT_ONCE_FIELD_NUMBER: _ClassVar[int]
    RATE_FIELD_NUMBER: _ClassVar[int]
    WHEN_FULL_FIELD_NUMBER: _ClassVar[int]
    key: str
    at_once: int
    rate: StartRate
    when_full: WhenFull
    def __init__(self, key: _Optional[str] = ..., at_once: _Optional[int] = ..., rate: _Optional[_Union[StartRate, _Mapping]] = ..., when_full: _Optional[_Union[WhenFull, str]] = ...) -> None: ...

class StartRate(_message.Message):
    __slots__ = ("starts", "window")
    STARTS_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    starts: int
    window: _duration_pb2.Duration
    def __init__(self, starts: _Optional[int] = ..., window: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class OnError(_message.Message):
    __slots__ = ("error_class", "strategy")
    ERROR_CLASS_FIELD_NUMBER: _ClassVar[int]
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    error_class: _failure_pb2.ErrorClass
    strategy: RecoveryStrategy
    def __init__(self, error_class: _Optional[_Union[_failure_pb2.ErrorClass, str]] = ..., strategy: _Optional[_Union[RecoveryStrategy, str]] = ...) -> None: ...

class AllowedCommands(_message.Message):
    __slots__ = ("programs",)
    PROGRAMS_FIELD_NUMBER: _ClassVar[int]
    programs: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, programs: _Optional[_Iterable[str]] = ...) -> None: ...

class Escalation(_message.Message):
    __slots__ = ("retries", "backoff", "exponential", "pause")
    RETRIES_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_FIELD_NUMBER: _ClassVar[int]
    EXPONENTIAL_FIELD_NUMBER: _ClassVar[int]
    PAUSE_FIELD_NUMBER: _ClassVar[int]
    retries: int
    backoff: _containers.RepeatedCompositeFieldContainer[_duration_pb2.Duration]
    exponential: _retry_policy_pb2.ExponentialBackoff
    pause: bool
    def __init__(self, retries: _Optional[int] = ..., backoff: _Optional[_Iterable[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]]] = ..., exponential: _Optional[_Union[_retry_policy_pb2.ExponentialBackoff, _Mapping]] = ..., pause: bool = ...) -> None: ...

class GroupTimeout(_message.Message):
    __slots__ = ("group", "timeout")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    group: str
    timeout: _duration_pb2.Duration
    def __init__(self, group: _Optional[str] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class Repeat(_message.Message):
    __slots__ = ("until", "max", "delay")
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    DELAY_FIELD_NUMBER: _ClassVar[int]
    until: str
    max: int
    delay: _duration_pb2.Duration
    def __init__(self, until: _Optional[str] = ..., max: _Optional[int] = ..., delay: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class PlanResource(_message.Message):
    __slots__ = ("name", "capacity")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    name: str
    capacity: int
    def __init__(self, name: _Optional[str] = ..., capacity: _Optional[int] = ...) -> None: ...

class PlanInput(_message.Message):
    __slots__ = ("name", "description", "schema", "default_value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    description: str
    schema: _payload_pb2.Payload
    default_value: _payload_pb2.Payload
    def __init__(self, name: _Optional[str] = ..., description: _Optional[str] = ..., schema: _Optional[_Union[_payload_pb2.Payload, _Mapping]] = ..., default_value: _Optional[_Union[_payload_pb2.Payload, _Mapping]] = ...) -> None: ...

class StepSpec(_message.Message):
    __slots__ = ("id", "title", "depends_on", "timeout", "group_timeouts", "fail_fast_groups", "attempt_timeout", "retry", "run_when", "condition", "for_each", "repeat", "fail_fast", "fallback", "compensate", "resources", "preconditions", "postconditions", "output_schema", "tool", "wait", "plan", "calls", "agent", "description", "group", "on_error", "budget", "outcomes")
    ID_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    DEPENDS_ON_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    GROUP_TIMEOUTS_FIELD_NUMBER: _ClassVar[int]
    FAIL_FAST_GROUPS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    RUN_WHEN_FIELD_NUMBER: _ClassVar[int]
    CONDITION_FIELD_NUMBER: _ClassVar[int]
    FOR_EACH_FIELD_NUMBER: _ClassVar[int]
    REPEAT_FIELD_NUMBER: _ClassVar[int]
    FAIL_FAST_FIELD_NUMBER: _ClassVar[int]
    FALLBACK_FIELD_NUMBER: _ClassVar[int]
    COMPENSATE_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    PRECONDITIONS_FIELD_NUMBER: _ClassVar[int]
    POSTCONDITIONS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    TOOL_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    ON_ERROR_FIELD_NUMBER: _ClassVar[int]
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    id: str
    title: str
    depends_on: _containers.RepeatedScalarFieldContainer[str]
    timeout: _duration_pb2.Duration
    group_timeouts: _containers.RepeatedCompositeFieldContainer[GroupTimeout]
    fail_fast_groups: _containers.RepeatedScalarFieldContainer[str]
    attempt_timeout: _duration_pb2.Duration
    retry: _retry_policy_pb2.RetryPolicy
    run_when: RunWhen
    condition: str
    for_each: _payload_pb2.Payload
    repeat: Repeat
    fail_fast: bool
    fallback: _containers.RepeatedCompositeFieldContainer[ToolStep]
    compensate: ToolStep
    resources: _containers.RepeatedScalarFieldContainer[str]
    preconditions: _containers.RepeatedCompositeFieldContainer[Check]
    postconditions: _containers.RepeatedCompositeFieldContainer[Check]
    output_schema: str
    tool: ToolStep
    wait: WaitStep
    plan: PlanStep
    calls: CallsStep
    agent: AgentStep
    description: str
    group: str
    on_error: _containers.RepeatedCompositeFieldContainer[OnError]
    budget: _budget_pb2.Budget
    outcomes: _containers.RepeatedCompositeFieldContainer[DependencyOutcomes]
    def __init__(self, id: _Optional[str] = ..., title: _Optional[str] = ..., depends_on: _Optional[_Iterable[str]] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., group_timeouts: _Optional[_Iterable[_Union[GroupTimeout, _Mapping]]] = ..., fail_fast_groups: _Optional[_Iterable[str]] = ..., attempt_timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., retry: _Optional[_Union[_retry_policy_pb2.RetryPolicy, _Mapping]] = ..., run_when: _Optional[_Union[RunWhen, str]] = ..., condition: _Optional[str] = ..., for_each: _Optional[_Union[_payload_pb2.Payload, _Mapping]] = ..., repeat: _Optional[_Union[Repeat, _Mapping]] = ..., fail_fast: bool = ..., fallback: _Optional[_Iterable[_Union[ToolStep, _Mapping]]] = ..., compensate: _Optional[_Union[ToolStep, _Mapping]] = ..., resources: _Optional[_Iterable[str]] = ..., preconditions: _Optional[_Iterable[_Union[Check, _Mapping]]] = ..., postconditions: _Optional[_Iterable[_Union[Check, _Mapping]]] = ..., output_schema: _Optional[str] = ..., tool: _Optional[_Union[ToolStep, _Mapping]] = ..., wait: _Optional[_Union[WaitStep, _Mapping]] = ..., plan: _Optional[_Union[PlanStep, _Mapping]] = ..., calls: _Optional[_Union[CallsStep, _Mapping]] = ..., agent: _Optional[_Union[AgentStep, _Mapping]] = ..., description: _Optional[str] = ..., group: _Optional[str] = ..., on_error: _Optional[_Iterable[_Union[OnError, _Mapping]]] = ..., budget: _Optional[_Union[_budget_pb2.Budget, _Mapping]] = ..., outcomes: _Optional[_Iterable[_Union[DependencyOutcomes, _Mapping]]] = ...) -> None: ...

class DependencyOutcomes(_message.Message):
    __slots__ = ("step", "outcomes")
    STEP_FIELD_NUMBER: _ClassVar[int]
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    step: str
    outcomes: _containers.RepeatedScalarFieldContainer[Outcome]
    def __init__(self, step: _Optional[str] = ..., outcomes: _Optional[_Iterable[_Union[Outcome, str]]] = ...) -> None: ...

class PlanStep(_message.Message):
    __slots__ = ("plan", "inputs")
    PLAN_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    plan: Plan
    inputs: _payload_pb2.Payload
    def __init__(self, plan: _Optional[_Union[Plan, _Mapping]] = ..., inputs: _Optional[_Union[_payload_pb2.Payload, _Mapping]] = ...) -> None: ...

class Check(_message.Message):
    __slots__ = ("condition", "file", "command", "judge")
    CONDITION_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    JUDGE_FIELD_NUMBER: _ClassVar[int]
    condition: str
    file: str
    command: Command
    judge: Judge
    def __init__(self, condition: _Optional[str] = ..., file: _Optional[str] = ..., command: _Optional[_Union[Command, _Mapping]] = ..., judge: _Optional[_Union[Judge, _Mapping]] = ...) -> None: ...

class Judge(_message.Message):
    __slots__ = ("criterion", "model")
    CRITERION_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    criterion: str
    model: str
    def __init__(self, criterion: _Optional[str] = ..., model: _Optional[str] = ...) -> None: ...

class Command(_message.Message):
    __slots__ = ("arguments",)
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    arguments: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, arguments: _Optional[_Iterable[str]] = ...) -> None: ...

class ToolStep(_message.Message):
    __slots__ = ("tool", "arguments", "exclusive", "verbatim", "network")
    TOOL_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    EXCLUSIVE_FIELD_NUMBER: _ClassVar[int]
    VERBATIM_FIELD_NUMBER: _ClassVar[int]
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    tool: str
    arguments: _payload_pb2.Payload
    exclusive: bool
    verbatim: _containers.RepeatedScalarFieldContainer[str]
    network: str
    def __init__(self, tool: _Optional[str] = ..., arguments: _Optional[_Union[_payload_pb2.Payload, _Mapping]] = ..., exclusive: bool = ..., verbatim: _Optional[_Iterable[str]] = ..., network: _Optional[str] = ...) -> None: ...

class CallsStep(_message.Message):
    __slots__ = ("calls", "exclusive", "effects", "network")
    class Effects(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        EFFECTS_UNSPECIFIED: _ClassVar[CallsStep.Effects]
        EFFECTS_PER_CALL: _ClassVar[CallsStep.Effects]
        EFFECTS_PER_STEP: _ClassVar[CallsStep.Effects]
    EFFECTS_UNSPECIFIED: CallsStep.Effects
    EFFECTS_PER_CALL: CallsStep.Effects
    EFFECTS_PER_STEP: CallsStep.Effects
    CALLS_FIELD_NUMBER: _ClassVar[int]
    EXCLUSIVE_FIELD_NUMBER: _ClassVar[int]
    EFFECTS_FIELD_NUMBER: _ClassVar[int]
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    calls: _containers.RepeatedCompositeFieldContainer[ToolStep]
    exclusive: bool
    effects: CallsStep.Effects
    network: str
    def __init__(self, calls: _Optional[_Iterable[_Union[ToolStep, _Mapping]]] = ..., exclusive: bool = ..., effects: _Optional[_Union[CallsStep.Effects, str]] = ..., network: _Optional[str] = ...) -> None: ...

class AgentStep(_message.Message):
    __slots__ = ("model", "task", "tools", "files", "max_turns", "fallback", "prompt_percent", "effects", "exclusive", "network")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    MAX_TURNS_FIELD_NUMBER: _ClassVar[int]
    FALLBACK_FIELD_NUMBER: _ClassVar[int]
    PROMPT_PERCENT_FIELD_NUMBER: _ClassVar[int]
    EFFECTS_FIELD_NUMBER: _ClassVar[int]
    EXCLUSIVE_FIELD_NUMBER: _ClassVar[int]
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    model: str
    task: str
    tools: _containers.RepeatedScalarFieldContainer[str]
    files: _containers.RepeatedScalarFieldContainer[str]
    max_turns: int
    fallback: _containers.RepeatedScalarFieldContainer[str]
    prompt_percent: int
    effects: CallsStep.Effects
    exclusive: bool
    network: str
    def __init__(self, model: _Optional[str] = ..., task: _Optional[str] = ..., tools: _Optional[_Iterable[str]] = ..., files: _Optional[_Iterable[str]] = ..., max_turns: _Optional[int] = ..., fallback: _Optional[_Iterable[str]] = ..., prompt_percent: _Optional[int] = ..., effects: _Optional[_Union[CallsStep.Effects, str]] = ..., exclusive: bool = ..., network: _Optional[str] = ...) -> None: ...

class WaitStep(_message.Message):
    __slots__ = ("duration", "until_time", "signal", "form")
    DURATION_FIELD_NUMBER: _ClassVar[int]
    UNTIL_TIME_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    FORM_FIELD_NUMBER: _ClassVar[int]
    duration: _duration_pb2.Duration
    until_time: _timestamp_pb2.Timestamp
    signal: str
    form: _form_pb2.Form
    def __init__(self, duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., until_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., signal: _Optional[str] = ..., form: _Optional[_Union[_form_pb2.Form, _Mapping]] = ...) -> None: ...

class PlanDocument(_message.Message):
    __slots__ = ("format", "text")
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    format: PlanFormat
    text: str
    def __init__(self, format: _Optional[_Union[PlanFormat, str]] = ..., text: _Optional[str] = ...) -> None: ...

class PlanViolation(_message.Message):
    __slots__ = ("field", "message", "line", "column")
    FIELD_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    COLUMN_FIELD_NUMBER: _ClassVar[int]
    field: str
    message: str
    line: int
    column: int
    def __init__(self, field: _Optional[str] = ..., message: _Optional[str] = ..., line: _Optional[int] = ..., column: _Optional[int] = ...) -> None: ...
