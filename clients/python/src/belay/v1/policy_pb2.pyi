from belay.v1 import options_pb2 as _options_pb2
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SignedPolicy(_message.Message):
    __slots__ = ("revision", "body", "signature", "key_id")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    revision: int
    body: bytes
    signature: bytes
    key_id: str
    def __init__(self, revision: _Optional[int] = ..., body: _Optional[bytes] = ..., signature: _Optional[bytes] = ..., key_id: _Optional[str] = ...) -> None: ...

class PolicyDecision(_message.Message):
    __slots__ = ("verdict", "rule", "reason", "policy_revision")
    class Verdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        VERDICT_UNSPECIFIED: _ClassVar[PolicyDecision.Verdict]
        VERDICT_AUTO: _ClassVar[PolicyDecision.Verdict]
        VERDICT_PREVIEW: _ClassVar[PolicyDecision.Verdict]
        VERDICT_PROMPT: _ClassVar[PolicyDecision.Verdict]
        VERDICT_DENY: _ClassVar[PolicyDecision.Verdict]
    VERDICT_UNSPECIFIED: PolicyDecision.Verdict
    VERDICT_AUTO: PolicyDecision.Verdict
    VERDICT_PREVIEW: PolicyDecision.Verdict
    VERDICT_PROMPT: PolicyDecision.Verdict
    VERDICT_DENY: PolicyDecision.Verdict
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    POLICY_REVISION_FIELD_NUMBER: _ClassVar[int]
    verdict: PolicyDecision.Verdict
    rule: str
    reason: str
    policy_revision: int
    def __init__(self, verdict: _Optional[_Union[PolicyDecision.Verdict, str]] = ..., rule: _Optional[str] = ..., reason: _Optional[str] = ..., policy_revision: _Optional[int] = ...) -> None: ...
