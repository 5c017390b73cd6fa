import datetime

from belay.v1 import approval_pb2 as _approval_pb2
from belay.v1 import effect_pb2 as _effect_pb2
from belay.v1 import options_pb2 as _options_pb2
from belay.v1 import payload_pb2 as _payload_pb2
from belay.v1 import watch_pb2 as _watch_pb2
from google.api import field_behavior_pb2 as _field_behavior_pb2
from google.api import resource_pb2 as _resource_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetApprovalRequest(_message.Message):
    __slots__ = ("name", "view")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    name: str
    view: _approval_pb2.ApprovalView
    def __init__(self, name: _Optional[str] = ..., view: _Optional[_Union[_approval_pb2.ApprovalView, str]] = ...) -> None: ...

class ListApprovalsRequest(_message.Message):
    __slots__ = ("parent", "page_size", "page_token", "states", "execution", "id_prefix")
    PARENT_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_FIELD_NUMBER: _ClassVar[int]
    ID_PREFIX_FIELD_NUMBER: _ClassVar[int]
    parent: str
    page_size: int
    page_token: str
    states: _containers.RepeatedScalarFieldContainer[_approval_pb2.Approval.State]
    execution: str
    id_prefix: str
    def __init__(self, parent: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., states: _Optional[_Iterable[_Union[_approval_pb2.Approval.State, str]]] = ..., execution: _Optional[str] = ..., id_prefix: _Optional[str] = ...) -> None: ...

class ListApprovalsResponse(_message.Message):
    __slots__ = ("approvals", "next_page_token")
    APPROVALS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    approvals: _containers.RepeatedCompositeFieldContainer[_approval_pb2.Approval]
    next_page_token: str
    def __init__(self, approvals: _Optional[_Iterable[_Union[_approval_pb2.Approval, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class WatchApprovalsRequest(_message.Message):
    __slots__ = ("parent", "cursor", "heartbeat_interval", "execution")
    PARENT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_FIELD_NUMBER: _ClassVar[int]
    parent: str
    cursor: str
    heartbeat_interval: _duration_pb2.Duration
    execution: str
    def __init__(self, parent: _Optional[str] = ..., cursor: _Optional[str] = ..., heartbeat_interval: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., execution: _Optional[str] = ...) -> None: ...

class WatchApprovalsResponse(_message.Message):
    __slots__ = ("cursor", "reset", "heartbeat", "listed", "approval")
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    LISTED_FIELD_NUMBER: _ClassVar[int]
    APPROVAL_FIELD_NUMBER: _ClassVar[int]
    cursor: str
    reset: _watch_pb2.WatchReset
    heartbeat: _watch_pb2.WatchHeartbeat
    listed: _watch_pb2.WatchListed
    approval: _approval_pb2.Approval
    def __init__(self, cursor: _Optional[str] = ..., reset: _Optional[_Union[_watch_pb2.WatchReset, _Mapping]] = ..., heartbeat: _Optional[_Union[_watch_pb2.WatchHeartbeat, _Mapping]] = ..., listed: _Optional[_Union[_watch_pb2.WatchListed, _Mapping]] = ..., approval: _Optional[_Union[_approval_pb2.Approval, _Mapping]] = ...) -> None: ...

class ListApprovalChangesRequest(_message.Message):
    __slots__ = ("name", "page_size", "page_token")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    name: str
    page_size: int
    page_token: str
    def __init__(self, name: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListApprovalChangesResponse(_message.Message):
    __slots__ = ("changes", "next_page_token", "total")
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    changes: _containers.RepeatedCompositeFieldContainer[_effect_pb2.PathChange]
    next_page_token: str
    total: int
    def __init__(self, changes: _Optional[_Iterable[_Union[_effect_pb2.PathChange, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., total: _Optional[int] = ...) -> None: ...

class GetApprovalChangeRequest(_message.Message):
    __slots__ = ("name", "index", "page_size", "page_token", "reveal", "of_call")
    NAME_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    REVEAL_FIELD_NUMBER: _ClassVar[int]
    OF_CALL_FIELD_NUMBER: _ClassVar[int]
    name: str
    index: int
    page_size: int
    page_token: str
    reveal: bool
    of_call: bool
    def __init__(self, name: _Optional[str] = ..., index: _Optional[int] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., reveal: bool = ..., of_call: bool = ...) -> None: ...

class GetApprovalChangeResponse(_message.Message):
    __slots__ = ("change", "next_page_token", "headline", "working_directory")
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    HEADLINE_FIELD_NUMBER: _ClassVar[int]
    WORKING_DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    change: _approval_pb2.FileDiff
    next_page_token: str
    headline: str
    working_directory: str
    def __init__(self, change: _Optional[_Union[_approval_pb2.FileDiff, _Mapping]] = ..., next_page_token: _Optional[str] = ..., headline: _Optional[str] = ..., working_directory: _Optional[str] = ...) -> None: ...

class DecideApprovalRequest(_message.Message):
    __slots__ = ("name", "subject_digest", "decision", "reason", "request_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_DIGEST_FIELD_NUMBER: _ClassVar[int]
    DECISION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    subject_digest: str
    decision: _approval_pb2.Decision
    reason: str
    request_id: str
    def __init__(self, name: _Optional[str] = ..., subject_digest: _Optional[str] = ..., decision: _Optional[_Union[_approval_pb2.Decision, str]] = ..., reason: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class AnswerFormRequest(_message.Message):
    __slots__ = ("name", "subject_digest", "answer", "request_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_DIGEST_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    subject_digest: str
    answer: _payload_pb2.Payload
    request_id: str
    def __init__(self, name: _Optional[str] = ..., subject_digest: _Optional[str] = ..., answer: _Optional[_Union[_payload_pb2.Payload, _Mapping]] = ..., request_id: _Optional[str] = ...) -> None: ...
