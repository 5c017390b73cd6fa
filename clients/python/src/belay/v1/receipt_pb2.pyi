import datetime

from belay.v1 import effect_pb2 as _effect_pb2
from belay.v1 import model_pb2 as _model_pb2
from belay.v1 import options_pb2 as _options_pb2
from belay.v1 import policy_pb2 as _policy_pb2
from google.api import field_behavior_pb2 as _field_behavior_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Receipt(_message.Message):
    __slots__ = ("ledger_id", "duration", "decision", "effect_digest", "effect", "grant_nonce", "enforced", "live_base", "concurrent_commits", "concurrent_commit_count", "left_out", "left_out_count", "write_bounds", "files", "unlisted_file_count", "output_bytes", "layer", "intent", "network", "usage")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    DURATION_FIELD_NUMBER: _ClassVar[int]
    DECISION_FIELD_NUMBER: _ClassVar[int]
    EFFECT_DIGEST_FIELD_NUMBER: _ClassVar[int]
    EFFECT_FIELD_NUMBER: _ClassVar[int]
    GRANT_NONCE_FIELD_NUMBER: _ClassVar[int]
    ENFORCED_FIELD_NUMBER: _ClassVar[int]
    LIVE_BASE_FIELD_NUMBER: _ClassVar[int]
    CONCURRENT_COMMITS_FIELD_NUMBER: _ClassVar[int]
    CONCURRENT_COMMIT_COUNT_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_COUNT_FIELD_NUMBER: _ClassVar[int]
    WRITE_BOUNDS_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    UNLISTED_FILE_COUNT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    LAYER_FIELD_NUMBER: _ClassVar[int]
    INTENT_FIELD_NUMBER: _ClassVar[int]
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    ledger_id: str
    duration: _duration_pb2.Duration
    decision: _policy_pb2.PolicyDecision
    effect_digest: str
    effect: _effect_pb2.EffectSummary
    grant_nonce: str
    enforced: _containers.RepeatedScalarFieldContainer[str]
    live_base: bool
    concurrent_commits: _containers.RepeatedScalarFieldContainer[str]
    concurrent_commit_count: int
    left_out: _containers.RepeatedScalarFieldContainer[str]
    left_out_count: int
    write_bounds: _containers.RepeatedCompositeFieldContainer[WriteBound]
    files: _containers.RepeatedCompositeFieldContainer[CommittedFile]
    unlisted_file_count: int
    output_bytes: int
    layer: str
    intent: CallIntent
    network: NetworkUse
    usage: _model_pb2.ModelUsage
    def __init__(self, ledger_id: _Optional[str] = ..., duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., decision: _Optional[_Union[_policy_pb2.PolicyDecision, _Mapping]] = ..., effect_digest: _Optional[str] = ..., effect: _Optional[_Union[_effect_pb2.EffectSummary, _Mapping]] = ..., grant_nonce: _Optional[str] = ..., enforced: _Optional[_Iterable[str]] = ..., live_base: bool = ..., concurrent_commits: _Optional[_Iterable[str]] = ..., concurrent_commit_count: _Optional[int] = ..., left_out: _Optional[_Iterable[str]] = ..., left_out_count: _Optional[int] = ..., write_bounds: _Optional[_Iterable[_Union[WriteBound, _Mapping]]] = ..., files: _Optional[_Iterable[_Union[CommittedFile, _Mapping]]] = ..., unlisted_file_count: _Optional[int] = ..., output_bytes: _Optional[int] = ..., layer: _Optional[str] = ..., intent: _Optional[_Union[CallIntent, _Mapping]] = ..., network: _Optional[_Union[NetworkUse, _Mapping]] = ..., usage: _Optional[_Union[_model_pb2.ModelUsage, _Mapping]] = ...) -> None: ...

class NetworkUse(_message.Message):
    __slots__ = ("profile", "connections", "unlisted_connection_count", "refused_count", "is_lost", "credentials")
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    CONNECTIONS_FIELD_NUMBER: _ClassVar[int]
    UNLISTED_CONNECTION_COUNT_FIELD_NUMBER: _ClassVar[int]
    REFUSED_COUNT_FIELD_NUMBER: _ClassVar[int]
    IS_LOST_FIELD_NUMBER: _ClassVar[int]
    CREDENTIALS_FIELD_NUMBER: _ClassVar[int]
    profile: str
    connections: _containers.RepeatedCompositeFieldContainer[NetworkConnection]
    unlisted_connection_count: int
    refused_count: int
    is_lost: bool
    credentials: _containers.RepeatedCompositeFieldContainer[CredentialUse]
    def __init__(self, profile: _Optional[str] = ..., connections: _Optional[_Iterable[_Union[NetworkConnection, _Mapping]]] = ..., unlisted_connection_count: _Optional[int] = ..., refused_count: _Optional[int] = ..., is_lost: bool = ..., credentials: _Optional[_Iterable[_Union[CredentialUse, _Mapping]]] = ...) -> None: ...

class CredentialUse(_message.Message):
    __slots__ = ("credential", "host", "request_count")
    CREDENTIAL_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    REQUEST_COUNT_FIELD_NUMBER: _ClassVar[int]
    credential: str
    host: str
    request_count: int
    def __init__(self, credential: _Optional[str] = ..., host: _Optional[str] = ..., request_count: _Optional[int] = ...) -> None: ...

class NetworkConnection(_message.Message):
    __slots__ = ("host", "port", "route", "is_allowed", "rule", "sent_bytes", "received_bytes", "duration", "failure")
    class Route(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ROUTE_UNSPECIFIED: _ClassVar[NetworkConnection.Route]
        ROUTE_PROXY: _ClassVar[NetworkConnection.Route]
        ROUTE_ADDRESS: _ClassVar[NetworkConnection.Route]
        ROUTE_NAME_SERVER: _ClassVar[NetworkConnection.Route]
        ROUTE_SERVICE: _ClassVar[NetworkConnection.Route]
        ROUTE_BASE_URL: _ClassVar[NetworkConnection.Route]
    ROUTE_UNSPECIFIED: NetworkConnection.Route
    ROUTE_PROXY: NetworkConnection.Route
    ROUTE_ADDRESS: NetworkConnection.Route
    ROUTE_NAME_SERVER: NetworkConnection.Route
    ROUTE_SERVICE: NetworkConnection.Route
    ROUTE_BASE_URL: NetworkConnection.Route
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    IS_ALLOWED_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    SENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    DURATION_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    host: str
    port: int
    route: NetworkConnection.Route
    is_allowed: bool
    rule: str
    sent_bytes: int
    received_bytes: int
    duration: _duration_pb2.Duration
    failure: str
    def __init__(self, host: _Optional[str] = ..., port: _Optional[int] = ..., route: _Optional[_Union[NetworkConnection.Route, str]] = ..., is_allowed: bool = ..., rule: _Optional[str] = ..., sent_bytes: _Optional[int] = ..., received_bytes: _Optional[int] = ..., duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., failure: _Optional[str] = ...) -> None: ...

class CallIntent(_message.Message):
    __slots__ = ("command", "program", "working_directory", "environment", "paths", "is_cut", "hosts", "network", "credentials")
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    WORKING_DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    PATHS_FIELD_NUMBER: _ClassVar[int]
    IS_CUT_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    CREDENTIALS_FIELD_NUMBER: _ClassVar[int]
    command: _containers.RepeatedScalarFieldContainer[str]
    program: str
    working_directory: str
    environment: _containers.RepeatedScalarFieldContainer[str]
    paths: _containers.RepeatedScalarFieldContainer[str]
    is_cut: bool
    hosts: _containers.RepeatedScalarFieldContainer[str]
    network: str
    credentials: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, command: _Optional[_Iterable[str]] = ..., program: _Optional[str] = ..., working_directory: _Optional[str] = ..., environment: _Optional[_Iterable[str]] = ..., paths: _Optional[_Iterable[str]] = ..., is_cut: bool = ..., hosts: _Optional[_Iterable[str]] = ..., network: _Optional[str] = ..., credentials: _Optional[_Iterable[str]] = ...) -> None: ...

class CommittedFile(_message.Message):
    __slots__ = ("path", "change", "file_type", "digest", "size_bytes", "mode", "previous_digest")
    class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        TYPE_UNSPECIFIED: _ClassVar[CommittedFile.Type]
        TYPE_FILE: _ClassVar[CommittedFile.Type]
        TYPE_DIRECTORY: _ClassVar[CommittedFile.Type]
        TYPE_SYMLINK: _ClassVar[CommittedFile.Type]
    TYPE_UNSPECIFIED: CommittedFile.Type
    TYPE_FILE: CommittedFile.Type
    TYPE_DIRECTORY: CommittedFile.Type
    TYPE_SYMLINK: CommittedFile.Type
    PATH_FIELD_NUMBER: _ClassVar[int]
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    FILE_TYPE_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    path: str
    change: _effect_pb2.PathChange.Kind
    file_type: CommittedFile.Type
    digest: str
    size_bytes: int
    mode: int
    previous_digest: str
    def __init__(self, path: _Optional[str] = ..., change: _Optional[_Union[_effect_pb2.PathChange.Kind, str]] = ..., file_type: _Optional[_Union[CommittedFile.Type, str]] = ..., digest: _Optional[str] = ..., size_bytes: _Optional[int] = ..., mode: _Optional[int] = ..., previous_digest: _Optional[str] = ...) -> None: ...

class WriteBound(_message.Message):
    __slots__ = ("place", "mechanism", "bytes", "files")
    class Mechanism(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        MECHANISM_UNSPECIFIED: _ClassVar[WriteBound.Mechanism]
        MECHANISM_TMPFS: _ClassVar[WriteBound.Mechanism]
        MECHANISM_WATCHER: _ClassVar[WriteBound.Mechanism]
    MECHANISM_UNSPECIFIED: WriteBound.Mechanism
    MECHANISM_TMPFS: WriteBound.Mechanism
    MECHANISM_WATCHER: WriteBound.Mechanism
    PLACE_FIELD_NUMBER: _ClassVar[int]
    MECHANISM_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    place: str
    mechanism: WriteBound.Mechanism
    bytes: int
    files: int
    def __init__(self, place: _Optional[str] = ..., mechanism: _Optional[_Union[WriteBound.Mechanism, str]] = ..., bytes: _Optional[int] = ..., files: _Optional[int] = ...) -> None: ...

class StepLayers(_message.Message):
    __slots__ = ("step", "round", "layers", "entry", "carried")
    STEP_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    CARRIED_FIELD_NUMBER: _ClassVar[int]
    step: str
    round: int
    layers: _containers.RepeatedScalarFieldContainer[str]
    entry: str
    carried: CarriedLayers
    def __init__(self, step: _Optional[str] = ..., round: _Optional[int] = ..., layers: _Optional[_Iterable[str]] = ..., entry: _Optional[str] = ..., carried: _Optional[_Union[CarriedLayers, _Mapping]] = ...) -> None: ...

class CarriedLayers(_message.Message):
    __slots__ = ("execution", "round", "layers")
    EXECUTION_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    execution: str
    round: int
    layers: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, execution: _Optional[str] = ..., round: _Optional[int] = ..., layers: _Optional[_Iterable[str]] = ...) -> None: ...
