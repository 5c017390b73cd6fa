import datetime

from belay.v1 import execution_pb2 as _execution_pb2
from belay.v1 import options_pb2 as _options_pb2
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

class GetTimelineRequest(_message.Message):
    __slots__ = ("name", "page_size", "page_token")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    name: str
    page_size: int
    page_token: str
    def __init__(self, name: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class Timeline(_message.Message):
    __slots__ = ("execution", "plan_id", "state", "create_time", "end_time", "rows", "pending_steps", "next_page_token")
    EXECUTION_FIELD_NUMBER: _ClassVar[int]
    PLAN_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    PENDING_STEPS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    execution: str
    plan_id: str
    state: _execution_pb2.Execution.State
    create_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    rows: _containers.RepeatedCompositeFieldContainer[TimelineRow]
    pending_steps: int
    next_page_token: str
    def __init__(self, execution: _Optional[str] = ..., plan_id: _Optional[str] = ..., state: _Optional[_Union[_execution_pb2.Execution.State, str]] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., rows: _Optional[_Iterable[_Union[TimelineRow, _Mapping]]] = ..., pending_steps: _Optional[int] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class TimelineRow(_message.Message):
    __slots__ = ("step_id", "state", "segments")
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    step_id: str
    state: _execution_pb2.Step.State
    segments: _containers.RepeatedCompositeFieldContainer[TimelineSegment]
    def __init__(self, step_id: _Optional[str] = ..., state: _Optional[_Union[_execution_pb2.Step.State, str]] = ..., segments: _Optional[_Iterable[_Union[TimelineSegment, _Mapping]]] = ...) -> None: ...

class TimelineSegment(_message.Message):
    __slots__ = ("kind", "attempt", "operation", "begin_time", "end_time")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[TimelineSegment.Kind]
        KIND_RUNNING: _ClassVar[TimelineSegment.Kind]
        KIND_PERSON: _ClassVar[TimelineSegment.Kind]
        KIND_WAITING: _ClassVar[TimelineSegment.Kind]
        KIND_BACKOFF: _ClassVar[TimelineSegment.Kind]
    KIND_UNSPECIFIED: TimelineSegment.Kind
    KIND_RUNNING: TimelineSegment.Kind
    KIND_PERSON: TimelineSegment.Kind
    KIND_WAITING: TimelineSegment.Kind
    KIND_BACKOFF: TimelineSegment.Kind
    KIND_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    BEGIN_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    kind: TimelineSegment.Kind
    attempt: int
    operation: int
    begin_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    def __init__(self, kind: _Optional[_Union[TimelineSegment.Kind, str]] = ..., attempt: _Optional[int] = ..., operation: _Optional[int] = ..., begin_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...
