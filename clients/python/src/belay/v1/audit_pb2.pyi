import datetime

from belay.v1 import options_pb2 as _options_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AuditLevel(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    AUDIT_LEVEL_UNSPECIFIED: _ClassVar[AuditLevel]
    AUDIT_LEVEL_MINIMAL: _ClassVar[AuditLevel]
    AUDIT_LEVEL_STANDARD: _ClassVar[AuditLevel]
    AUDIT_LEVEL_VERBOSE: _ClassVar[AuditLevel]
AUDIT_LEVEL_UNSPECIFIED: AuditLevel
AUDIT_LEVEL_MINIMAL: AuditLevel
AUDIT_LEVEL_STANDARD: AuditLevel
AUDIT_LEVEL_VERBOSE: AuditLevel

class AuditEntry(_message.Message):
    __slots__ = ("sequence", "record_time", "severity", "level", "step_id", "attempt", "message", "details", "principal", "request_id")
    class Severity(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        SEVERITY_UNSPECIFIED: _ClassVar[AuditEntry.Severity]
        SEVERITY_INFO: _ClassVar[AuditEntry.Severity]
        SEVERITY_WARN: _ClassVar[AuditEntry.Severity]
        SEVERITY_ERROR: _ClassVar[AuditEntry.Severity]
    SEVERITY_UNSPECIFIED: AuditEntry.Severity
    SEVERITY_INFO: AuditEntry.Severity
    SEVERITY_WARN: AuditEntry.Severity
    SEVERITY_ERROR: AuditEntry.Severity
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    RECORD_TIME_FIELD_NUMBER: _ClassVar[int]
    SEVERITY_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    record_time: _timestamp_pb2.Timestamp
    severity: AuditEntry.Severity
    level: AuditLevel
    step_id: str
    attempt: int
    message: str
    details: str
    principal: str
    request_id: str
    def __init__(self, sequence: _Optional[int] = ..., record_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., severity: _Optional[_Union[AuditEntry.Severity, str]] = ..., level: _Optional[_Union[AuditLevel, str]] = ..., step_id: _Optional[str] = ..., attempt: _Optional[int] = ..., message: _Optional[str] = ..., details: _Optional[str] = ..., principal: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...
