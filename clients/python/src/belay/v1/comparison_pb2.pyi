from belay.v1 import execution_pb2 as _execution_pb2
from belay.v1 import options_pb2 as _options_pb2
from belay.v1 import payload_pb2 as _payload_pb2
from google.api import field_behavior_pb2 as _field_behavior_pb2
from google.api import resource_pb2 as _resource_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CompareExecutionsRequest(_message.Message):
    __slots__ = ("before", "after")
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    before: str
    after: str
    def __init__(self, before: _Optional[str] = ..., after: _Optional[str] = ...) -> None: ...

class CompareExecutionsResponse(_message.Message):
    __slots__ = ("before", "after", "plan_changes", "left_out_plan_changes", "added_steps", "left_out_added_steps", "removed_steps", "left_out_removed_steps", "planned_step_changes", "left_out_planned_step_changes", "input_changes", "left_out_input_changes", "execution_changes", "step_changes", "left_out_step_changes", "equal_steps")
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    PLAN_CHANGES_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_PLAN_CHANGES_FIELD_NUMBER: _ClassVar[int]
    ADDED_STEPS_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_ADDED_STEPS_FIELD_NUMBER: _ClassVar[int]
    REMOVED_STEPS_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_REMOVED_STEPS_FIELD_NUMBER: _ClassVar[int]
    PLANNED_STEP_CHANGES_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_PLANNED_STEP_CHANGES_FIELD_NUMBER: _ClassVar[int]
    INPUT_CHANGES_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_INPUT_CHANGES_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_CHANGES_FIELD_NUMBER: _ClassVar[int]
    STEP_CHANGES_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_STEP_CHANGES_FIELD_NUMBER: _ClassVar[int]
    EQUAL_STEPS_FIELD_NUMBER: _ClassVar[int]
    before: _execution_pb2.Execution
    after: _execution_pb2.Execution
    plan_changes: _containers.RepeatedCompositeFieldContainer[FieldChange]
    left_out_plan_changes: int
    added_steps: _containers.RepeatedScalarFieldContainer[str]
    left_out_added_steps: int
    removed_steps: _containers.RepeatedScalarFieldContainer[str]
    left_out_removed_steps: int
    planned_step_changes: _containers.RepeatedCompositeFieldContainer[StepChanges]
    left_out_planned_step_changes: int
    input_changes: _containers.RepeatedCompositeFieldContainer[FieldChange]
    left_out_input_changes: int
    execution_changes: _containers.RepeatedCompositeFieldContainer[FieldChange]
    step_changes: _containers.RepeatedCompositeFieldContainer[StepChanges]
    left_out_step_changes: int
    equal_steps: int
    def __init__(self, before: _Optional[_Union[_execution_pb2.Execution, _Mapping]] = ..., after: _Optional[_Union[_execution_pb2.Execution, _Mapping]] = ..., plan_changes: _Optional[_Iterable[_Union[FieldChange, _Mapping]]] = ..., left_out_plan_changes: _Optional[int] = ..., added_steps: _Optional[_Iterable[str]] = ..., left_out_added_steps: _Optional[int] = ..., removed_steps: _Optional[_Iterable[str]] = ..., left_out_removed_steps: _Optional[int] = ..., planned_step_changes: _Optional[_Iterable[_Union[StepChanges, _Mapping]]] = ..., left_out_planned_step_changes: _Optional[int] = ..., input_changes: _Optional[_Iterable[_Union[FieldChange, _Mapping]]] = ..., left_out_input_changes: _Optional[int] = ..., execution_changes: _Optional[_Iterable[_Union[FieldChange, _Mapping]]] = ..., step_changes: _Optional[_Iterable[_Union[StepChanges, _Mapping]]] = ..., left_out_step_changes: _Optional[int] = ..., equal_steps: _Optional[int] = ...) -> None: ...

class StepChanges(_message.Message):
    __slots__ = ("step_id", "changes")
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    step_id: str
    changes: _containers.RepeatedCompositeFieldContainer[FieldChange]
    def __init__(self, step_id: _Optional[str] = ..., changes: _Optional[_Iterable[_Union[FieldChange, _Mapping]]] = ...) -> None: ...

class FieldChange(_message.Message):
    __slots__ = ("path", "before_value", "before_bytes", "after_value", "after_bytes")
    PATH_FIELD_NUMBER: _ClassVar[int]
    BEFORE_VALUE_FIELD_NUMBER: _ClassVar[int]
    BEFORE_BYTES_FIELD_NUMBER: _ClassVar[int]
    AFTER_VALUE_FIELD_NUMBER: _ClassVar[int]
    AFTER_BYTES_FIELD_NUMBER: _ClassVar[int]
    path: _containers.RepeatedScalarFieldContainer[str]
    before_value: _payload_pb2.Payload
    before_bytes: int
    after_value: _payload_pb2.Payload
    after_bytes: int
    def __init__(self, path: _Optional[_Iterable[str]] = ..., before_value: _Optional[_Union[_payload_pb2.Payload, _Mapping]] = ..., before_bytes: _Optional[int] = ..., after_value: _Optional[_Union[_payload_pb2.Payload, _Mapping]] = ..., after_bytes: _Optional[int] = ...) -> None: ...
