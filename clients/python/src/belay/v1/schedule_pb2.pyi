import datetime

from belay.v1 import execution_pb2 as _execution_pb2
from belay.v1 import options_pb2 as _options_pb2
from belay.v1 import payload_pb2 as _payload_pb2
from belay.v1 import plan_pb2 as _plan_pb2
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

class Schedule(_message.Message):
    __slots__ = ("name", "cron", "interval", "anchor_time", "time_zone", "jitter", "overlap", "catch_up_window", "execution", "paused", "pause_reason", "uid", "principal", "create_time", "next_times", "running", "waiting", "started", "skipped", "failed", "records")
    class Overlap(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        OVERLAP_UNSPECIFIED: _ClassVar[Schedule.Overlap]
        OVERLAP_SKIP: _ClassVar[Schedule.Overlap]
        OVERLAP_QUEUE: _ClassVar[Schedule.Overlap]
        OVERLAP_CANCEL_OLDER: _ClassVar[Schedule.Overlap]
        OVERLAP_ALLOW: _ClassVar[Schedule.Overlap]
    OVERLAP_UNSPECIFIED: Schedule.Overlap
    OVERLAP_SKIP: Schedule.Overlap
    OVERLAP_QUEUE: Schedule.Overlap
    OVERLAP_CANCEL_OLDER: Schedule.Overlap
    OVERLAP_ALLOW: Schedule.Overlap
    NAME_FIELD_NUMBER: _ClassVar[int]
    CRON_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_FIELD_NUMBER: _ClassVar[int]
    ANCHOR_TIME_FIELD_NUMBER: _ClassVar[int]
    TIME_ZONE_FIELD_NUMBER: _ClassVar[int]
    JITTER_FIELD_NUMBER: _ClassVar[int]
    OVERLAP_FIELD_NUMBER: _ClassVar[int]
    CATCH_UP_WINDOW_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    PAUSE_REASON_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    NEXT_TIMES_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    name: str
    cron: str
    interval: _duration_pb2.Duration
    anchor_time: _timestamp_pb2.Timestamp
    time_zone: str
    jitter: _duration_pb2.Duration
    overlap: Schedule.Overlap
    catch_up_window: _duration_pb2.Duration
    execution: ScheduledExecution
    paused: bool
    pause_reason: str
    uid: str
    principal: str
    create_time: _timestamp_pb2.Timestamp
    next_times: _containers.RepeatedCompositeFieldContainer[_timestamp_pb2.Timestamp]
    running: _containers.RepeatedScalarFieldContainer[str]
    waiting: int
    started: int
    skipped: int
    failed: int
    records: _containers.RepeatedCompositeFieldContainer[ScheduleRecord]
    def __init__(self, name: _Optional[str] = ..., cron: _Optional[str] = ..., interval: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., anchor_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., time_zone: _Optional[str] = ..., jitter: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., overlap: _Optional[_Union[Schedule.Overlap, str]] = ..., catch_up_window: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., execution: _Optional[_Union[ScheduledExecution, _Mapping]] = ..., paused: bool = ..., pause_reason: _Optional[str] = ..., uid: _Optional[str] = ..., principal: _Optional[str] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., next_times: _Optional[_Iterable[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]]] = ..., running: _Optional[_Iterable[str]] = ..., waiting: _Optional[int] = ..., started: _Optional[int] = ..., skipped: _Optional[int] = ..., failed: _Optional[int] = ..., records: _Optional[_Iterable[_Union[ScheduleRecord, _Mapping]]] = ...) -> None: ...

class ScheduledExecution(_message.Message):
    __slots__ = ("plan", "document", "labels", "approval_mode", "workspace", "inputs", "step_timeout", "plan_id")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PLAN_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    APPROVAL_MODE_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    STEP_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    PLAN_ID_FIELD_NUMBER: _ClassVar[int]
    plan: _plan_pb2.Plan
    document: _plan_pb2.PlanDocument
    labels: _containers.ScalarMap[str, str]
    approval_mode: _execution_pb2.ApprovalMode
    workspace: str
    inputs: _payload_pb2.Payload
    step_timeout: _duration_pb2.Duration
    plan_id: str
    def __init__(self, plan: _Optional[_Union[_plan_pb2.Plan, _Mapping]] = ..., document: _Optional[_Union[_plan_pb2.PlanDocument, _Mapping]] = ..., labels: _Optional[_Mapping[str, str]] = ..., approval_mode: _Optional[_Union[_execution_pb2.ApprovalMode, str]] = ..., workspace: _Optional[str] = ..., inputs: _Optional[_Union[_payload_pb2.Payload, _Mapping]] = ..., step_timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., plan_id: _Optional[str] = ...) -> None: ...

class ScheduleRecord(_message.Message):
    __slots__ = ("first_time", "last_time", "count", "origin", "outcome", "execution_id", "problem")
    class Origin(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ORIGIN_UNSPECIFIED: _ClassVar[ScheduleRecord.Origin]
        ORIGIN_SCHEDULE: _ClassVar[ScheduleRecord.Origin]
        ORIGIN_BACKFILL: _ClassVar[ScheduleRecord.Origin]
        ORIGIN_TRIGGER: _ClassVar[ScheduleRecord.Origin]
    ORIGIN_UNSPECIFIED: ScheduleRecord.Origin
    ORIGIN_SCHEDULE: ScheduleRecord.Origin
    ORIGIN_BACKFILL: ScheduleRecord.Origin
    ORIGIN_TRIGGER: ScheduleRecord.Origin
    class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        OUTCOME_UNSPECIFIED: _ClassVar[ScheduleRecord.Outcome]
        OUTCOME_STARTED: _ClassVar[ScheduleRecord.Outcome]
        OUTCOME_MISSED: _ClassVar[ScheduleRecord.Outcome]
        OUTCOME_PAUSED: _ClassVar[ScheduleRecord.Outcome]
        OUTCOME_OVERLAP: _ClassVar[ScheduleRecord.Outcome]
        OUTCOME_QUEUE_FULL: _ClassVar[ScheduleRecord.Outcome]
        OUTCOME_SUPERSEDED: _ClassVar[ScheduleRecord.Outcome]
        OUTCOME_FAILED: _ClassVar[ScheduleRecord.Outcome]
    OUTCOME_UNSPECIFIED: ScheduleRecord.Outcome
    OUTCOME_STARTED: ScheduleRecord.Outcome
    OUTCOME_MISSED: ScheduleRecord.Outcome
    OUTCOME_PAUSED: ScheduleRecord.Outcome
    OUTCOME_OVERLAP: ScheduleRecord.Outcome
    OUTCOME_QUEUE_FULL: ScheduleRecord.Outcome
    OUTCOME_SUPERSEDED: ScheduleRecord.Outcome
    OUTCOME_FAILED: ScheduleRecord.Outcome
    FIRST_TIME_FIELD_NUMBER: _ClassVar[int]
    LAST_TIME_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_ID_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    first_time: _timestamp_pb2.Timestamp
    last_time: _timestamp_pb2.Timestamp
    count: int
    origin: ScheduleRecord.Origin
    outcome: ScheduleRecord.Outcome
    execution_id: str
    problem: str
    def __init__(self, first_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., last_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., count: _Optional[int] = ..., origin: _Optional[_Union[ScheduleRecord.Origin, str]] = ..., outcome: _Optional[_Union[ScheduleRecord.Outcome, str]] = ..., execution_id: _Optional[str] = ..., problem: _Optional[str] = ...) -> None: ...
