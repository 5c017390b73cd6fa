"""The errors of the client: one base class, and a subclass for each class of error.

A request that the server refuses raises a subclass of `BelayError` by its gRPC code. What goes wrong while an execution runs is not an error of a
method: it is the execution's `failure`, and only `result()` raises it, as `ExecutionFailedError`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc
from google.rpc import error_details_pb2, status_pb2

if TYPE_CHECKING:
    from belay.models import ExecutionInfo, Failure

#: The domain of the reasons in `google.rpc.ErrorInfo`.
DOMAIN = "belay.dev"
#: The page that explains each reason, in Belay's documentation.
ERRORS_PAGE = "docs/errors.md"

_DETAILS = "grpc-status-details-bin"


@dataclass(frozen=True)
class FieldViolation:
    """A problem with one field of a request or a plan."""

    #: The field as the caller wrote it, such as `steps[2].depends_on[0]`.
    field: str
    #: The problem, and what to do about it.
    description: str
    #: The line in the plan's document, counted from 1; 0 when it is not known.
    line: int = 0
    #: The column in the plan's document, counted from 1; 0 when it is not known.
    column: int = 0

    def __str__(self) -> str:
        return f"{self.field}: {self.description}" if self.field else self.description


class BelayError(Exception):
    """The base of all errors that the client raises.

    `reason` is a stable identifier for programs, such as `EXECUTION_NOT_FOUND`; `code` the name of the gRPC code, such as `NOT_FOUND`; `message` a
    sentence for people, which may change; `field_violations` the fields that are wrong; `retry_after` the seconds after which a repetition can succeed, or
    None when that is not known; `metadata` further facts by name; `page` where the reason is explained.
    """

    def __init__(
        self,
        message: str,
        *,
        reason: str,
        code: str = "",
        field_violations: tuple[FieldViolation, ...] = (),
        retry_after: float | None = None,
        metadata: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason
        self.code = code
        self.field_violations = field_violations
        self.retry_after = retry_after
        self.metadata = metadata or {}

    @property
    def page(self) -> str:
        """The page and anchor in Belay's documentation that explain the reason."""
        return f"{ERRORS_PAGE}#{self.reason.lower()}"

    def __str__(self) -> str:
        lines = [f"{self.message} ({self.reason}: {self.page})"]
        lines += [f"  {violation}" for violation in self.field_violations]
        return "\n".join(lines)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.message, dict(self.__dict__)))


def _rebuild(kind: type[BelayError], message: str, state: dict[str, Any]) -> BelayError:
    error = kind.__new__(kind)
    Exception.__init__(error, message)
    error.__dict__.update(state)
    return error


class UsageError(BelayError, ValueError):
    """The client was used wrongly: an address, an argument or a plan that cannot be sent. Nothing was sent."""

    def __init__(self, message: str, *, reason: str = "INVALID_USAGE", field: str = "") -> None:
        violations = (FieldViolation(field, message),) if field else ()
        super().__init__(message, reason=reason, field_violations=violations)

    def __str__(self) -> str:
        return f"{self.message} ({self.reason}: {self.page})"


class InvalidArgumentError(BelayError):
    """A field of the request has a value that is not allowed, such as a plan that is not valid. Nothing happened."""


class OutOfRangeError(BelayError):
    """An offset or a position is after the end."""


class NotFoundError(BelayError):
    """The resource that the request names does not exist, or exists no longer."""


class AlreadyExistsError(BelayError):
    """The id is taken, or the key was used for another request. Nothing happened."""


class PreconditionError(BelayError):
    """The state does not allow the request, such as an execution that has ended or an approval that was decided."""


class AbortedError(BelayError):
    """The execution has changed since the `etag` of the request was read."""


class UnauthenticatedError(BelayError):
    """The server does not know the token, or the caller sent none."""


class PermissionDeniedError(BelayError):
    """The caller is known, and none of its roles allows the request."""


class ResourceExhaustedError(BelayError):
    """A limit of the server is reached; `retry_after` says when to try again, if that is known."""


class UnavailableError(BelayError):
    """The server does not answer, or cannot serve the request now."""


class DeadlineExceededError(BelayError, TimeoutError):
    """The answer did not come within the timeout of the call. A change may have happened."""


class CallCancelledError(BelayError):
    """The call was cancelled, by this process or on its way."""


class DataLossError(BelayError):
    """Stored data is missing or damaged."""


class InternalError(BelayError):
    """A fault of the server or of a proxy on the way."""


class UnimplementedError(BelayError):
    """The server does not have the method: it is older than the client, or it is no Belay server."""


class ContractError(BelayError):
    """The server sent what this client does not understand and must not ignore: upgrade the client."""


class WaitTimeoutError(BelayError, TimeoutError):
    """The execution did not end within the timeout of the wait. It continues."""

    def __init__(self, message: str, info: ExecutionInfo | None = None) -> None:
        super().__init__(message, reason="WAIT_TIMEOUT")
        #: The execution as it was last seen, or None when it was never seen.
        self.info = info


class ExecutionFailedError(BelayError):
    """The execution has ended in another state than COMPLETED; raised by `result()` alone.

    `info` is the execution with its `state`, `failure` is that of the first step that failed or None, and `outputs` what the plan returns all the same
    (PARTIAL).
    """

    def __init__(self, info: ExecutionInfo, outputs: Any = None) -> None:
        failure = info.failure
        reason = {"CANCELLED": "EXECUTION_CANCELLED", "TIMED_OUT": "EXECUTION_TIMED_OUT"}.get(info.state, "EXECUTION_FAILED")
        message = f"The execution `{info.id}` has ended {info.state}."
        if failure is not None:
            message += f" {failure.message}"
            reason = failure.reason or reason
        super().__init__(message, reason=reason)
        self.info = info
        self.failure: Failure | None = failure
        self.outputs = outputs


_CLASSES: dict[str, type[BelayError]] = {
    "INVALID_ARGUMENT": InvalidArgumentError,
    "OUT_OF_RANGE": OutOfRangeError,
    "NOT_FOUND": NotFoundError,
    "ALREADY_EXISTS": AlreadyExistsError,
    "FAILED_PRECONDITION": PreconditionError,
    "ABORTED": AbortedError,
    "UNAUTHENTICATED": UnauthenticatedError,
    "PERMISSION_DENIED": PermissionDeniedError,
    "RESOURCE_EXHAUSTED": ResourceExhaustedError,
    "UNAVAILABLE": UnavailableError,
    "DEADLINE_EXCEEDED": DeadlineExceededError,
    "CANCELLED": CallCancelledError,
    "DATA_LOSS": DataLossError,
    "INTERNAL": InternalError,
    "UNKNOWN": InternalError,
    "UNIMPLEMENTED": UnimplementedError,
}
_NAMES = {code.value[0]: code.name for code in grpc.StatusCode}


def decode_rpc_error(error: Any, target: str) -> BelayError:
    """Returns the typed error for one of gRPC's; `target` is the address of the server, for the message."""
    code = error.code().name if error.code() is not None else "UNKNOWN"
    message = error.details() or ""
    status = _status_of(error)
    if status is not None:
        code, message = _NAMES.get(status.code, code), status.message or message
    reason, violations, retry_after, metadata = "", [], None, {}
    for detail in status.details if status is not None else ():
        if detail.Is(error_details_pb2.ErrorInfo.DESCRIPTOR):
            info = error_details_pb2.ErrorInfo.FromString(detail.value)
            if info.domain == DOMAIN:
                reason, metadata = info.reason, dict(info.metadata)
        elif detail.Is(error_details_pb2.BadRequest.DESCRIPTOR):
            request = error_details_pb2.BadRequest.FromString(detail.value)
            violations += [FieldViolation(one.field, one.description) for one in request.field_violations]
        elif detail.Is(error_details_pb2.RetryInfo.DESCRIPTOR):
            delay = error_details_pb2.RetryInfo.FromString(detail.value).retry_delay
            retry_after = delay.seconds + delay.nanos / 1e9
    if not reason:
        reason = code
        if code == "UNAVAILABLE":
            reason = "SERVER_UNREACHABLE"
            message = f"The server at {target} does not answer: {message or 'the connection was lost'}"
        elif code == "UNKNOWN" and not status:
            message = f"The connection to {target} broke within an answer: {message}"
        elif code == "DEADLINE_EXCEEDED":
            message = f"The server at {target} did not answer in time."
    return _CLASSES.get(code, InternalError)(
        message or f"The server answered {code}.",
        reason=reason,
        code=code,
        field_violations=tuple(violations),
        retry_after=retry_after,
        metadata=metadata,
    )


def _status_of(error: Any) -> Any:
    """Returns the `google.rpc.Status` of an error, or None."""
    # Beside the trailing metadata, since a status that stands in the headers of an answer that does not end with them is lost for gRPC's C core,
    # which reports UNKNOWN; its details arrive all the same, as initial metadata.
    for read in (error.trailing_metadata, getattr(error, "initial_metadata", lambda: None)):
        try:
            entries = read() or ()
        except Exception:  # noqa: BLE001 - an error without metadata is an error without details
            continue
        for key, value in entries:
            if key != _DETAILS:
                continue
            status = status_pb2.Status()
            try:
                status.ParseFromString(value)
            except Exception:  # noqa: BLE001 - details of a proxy may be anything
                return None
            return status
    return None
