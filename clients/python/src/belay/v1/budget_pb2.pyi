import datetime

from belay.v1 import options_pb2 as _options_pb2
from google.api import field_behavior_pb2 as _field_behavior_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ExhaustedAction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EXHAUSTED_ACTION_UNSPECIFIED: _ClassVar[ExhaustedAction]
    EXHAUSTED_ACTION_PAUSE: _ClassVar[ExhaustedAction]
    EXHAUSTED_ACTION_FAIL: _ClassVar[ExhaustedAction]
    EXHAUSTED_ACTION_NEXT_FALLBACK: _ClassVar[ExhaustedAction]
EXHAUSTED_ACTION_UNSPECIFIED: ExhaustedAction
EXHAUSTED_ACTION_PAUSE: ExhaustedAction
EXHAUSTED_ACTION_FAIL: ExhaustedAction
EXHAUSTED_ACTION_NEXT_FALLBACK: ExhaustedAction

class Budget(_message.Message):
    __slots__ = ("calls", "output_bytes", "tokens", "cost_micros", "on_exhausted")
    CALLS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    COST_MICROS_FIELD_NUMBER: _ClassVar[int]
    ON_EXHAUSTED_FIELD_NUMBER: _ClassVar[int]
    calls: int
    output_bytes: int
    tokens: int
    cost_micros: int
    on_exhausted: ExhaustedAction
    def __init__(self, calls: _Optional[int] = ..., output_bytes: _Optional[int] = ..., tokens: _Optional[int] = ..., cost_micros: _Optional[int] = ..., on_exhausted: _Optional[_Union[ExhaustedAction, str]] = ...) -> None: ...

class BudgetAmounts(_message.Message):
    __slots__ = ("calls", "output_bytes", "tokens", "cost_micros")
    CALLS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    COST_MICROS_FIELD_NUMBER: _ClassVar[int]
    calls: int
    output_bytes: int
    tokens: int
    cost_micros: int
    def __init__(self, calls: _Optional[int] = ..., output_bytes: _Optional[int] = ..., tokens: _Optional[int] = ..., cost_micros: _Optional[int] = ...) -> None: ...

class BudgetAllotment(_message.Message):
    __slots__ = ("calls", "output_bytes", "tokens", "cost_micros")
    CALLS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    COST_MICROS_FIELD_NUMBER: _ClassVar[int]
    calls: int
    output_bytes: int
    tokens: int
    cost_micros: int
    def __init__(self, calls: _Optional[int] = ..., output_bytes: _Optional[int] = ..., tokens: _Optional[int] = ..., cost_micros: _Optional[int] = ...) -> None: ...

class BudgetReport(_message.Message):
    __slots__ = ("unit", "budget_step_id", "spent", "limit")
    class Unit(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNIT_UNSPECIFIED: _ClassVar[BudgetReport.Unit]
        UNIT_CALLS: _ClassVar[BudgetReport.Unit]
        UNIT_OUTPUT_BYTES: _ClassVar[BudgetReport.Unit]
        UNIT_TOKENS: _ClassVar[BudgetReport.Unit]
        UNIT_COST_MICROS: _ClassVar[BudgetReport.Unit]
    UNIT_UNSPECIFIED: BudgetReport.Unit
    UNIT_CALLS: BudgetReport.Unit
    UNIT_OUTPUT_BYTES: BudgetReport.Unit
    UNIT_TOKENS: BudgetReport.Unit
    UNIT_COST_MICROS: BudgetReport.Unit
    UNIT_FIELD_NUMBER: _ClassVar[int]
    BUDGET_STEP_ID_FIELD_NUMBER: _ClassVar[int]
    SPENT_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    unit: BudgetReport.Unit
    budget_step_id: str
    spent: int
    limit: int
    def __init__(self, unit: _Optional[_Union[BudgetReport.Unit, str]] = ..., budget_step_id: _Optional[str] = ..., spent: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class NamespaceHold(_message.Message):
    __slots__ = ("window_start_time", "window_end_time", "amounts")
    WINDOW_START_TIME_FIELD_NUMBER: _ClassVar[int]
    WINDOW_END_TIME_FIELD_NUMBER: _ClassVar[int]
    AMOUNTS_FIELD_NUMBER: _ClassVar[int]
    window_start_time: _timestamp_pb2.Timestamp
    window_end_time: _timestamp_pb2.Timestamp
    amounts: BudgetAmounts
    def __init__(self, window_start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., window_end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., amounts: _Optional[_Union[BudgetAmounts, _Mapping]] = ...) -> None: ...
