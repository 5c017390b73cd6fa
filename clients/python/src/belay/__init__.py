"""The Python client of Belay, the executor of AI agents' plans.

    from belay import Client

    with Client.connect() as client:
        execution = client.start({"id": "hello", "steps": [{"id": "say", "tool": "noop", "arguments": {"output": "hello"}}]})
        for event in execution.events():
            print(event.sequence, event.kind, event.step_id)
        print(execution.output("say"))

`AsyncClient` has the same methods for asyncio. What can be shared:

- threads: a `Client` and everything that it returns, except that one thread reads a stream;
- forks: a `Client` can be used in a child process, which makes its own connection, if no call or stream was open at the fork: close them before;
- event loops: an `AsyncClient` belongs to the loop of its first call, and not to a child process. Elsewhere it raises `UsageError`.
"""

__version__ = "0.1.0"

from belay import raw
from belay._aio.approvals import AsyncApproval, AsyncApprovals, AsyncApprovalUpdate, AsyncApprovalUpdates
from belay._aio.client import AsyncClient
from belay._aio.execution import AsyncExecution
from belay._aio.streams import AsyncEventStream, AsyncExecutionUpdates
from belay._sync.approvals import Approval, Approvals, ApprovalUpdate, ApprovalUpdates
from belay._sync.client import Client
from belay._sync.execution import Execution
from belay._sync.streams import EventStream, ExecutionUpdates
from belay.errors import (
    AbortedError,
    AlreadyExistsError,
    BelayError,
    CallCancelledError,
    ContractError,
    DataLossError,
    DeadlineExceededError,
    ExecutionFailedError,
    FieldViolation,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
    PermissionDeniedError,
    PreconditionError,
    ResourceExhaustedError,
    UnauthenticatedError,
    UnavailableError,
    UnimplementedError,
    UsageError,
    WaitTimeoutError,
)
from belay.models import (
    Artifact,
    Blob,
    Event,
    ExecutionInfo,
    ExecutionUpdate,
    Failure,
    Form,
    PathChange,
    Removed,
    StepInfo,
    Waiting,
)
from belay.plans import Plan, Reference, StepRef, literal
from belay.settings import CONTRACT_REVISION, TLS

#: Makes a blocking client: `Client.connect`.
connect = Client.connect

__all__ = [
    "CONTRACT_REVISION",
    "TLS",
    "AbortedError",
    "AlreadyExistsError",
    "Approval",
    "ApprovalUpdate",
    "ApprovalUpdates",
    "Approvals",
    "Artifact",
    "AsyncApproval",
    "AsyncApprovalUpdate",
    "AsyncApprovalUpdates",
    "AsyncApprovals",
    "AsyncClient",
    "AsyncEventStream",
    "AsyncExecution",
    "AsyncExecutionUpdates",
    "BelayError",
    "Blob",
    "CallCancelledError",
    "Client",
    "ContractError",
    "DataLossError",
    "DeadlineExceededError",
    "Event",
    "EventStream",
    "Execution",
    "ExecutionFailedError",
    "ExecutionInfo",
    "ExecutionUpdate",
    "ExecutionUpdates",
    "Failure",
    "FieldViolation",
    "Form",
    "InternalError",
    "InvalidArgumentError",
    "NotFoundError",
    "OutOfRangeError",
    "PathChange",
    "PermissionDeniedError",
    "Plan",
    "PreconditionError",
    "Reference",
    "Removed",
    "ResourceExhaustedError",
    "StepInfo",
    "StepRef",
    "UnauthenticatedError",
    "UnavailableError",
    "UnimplementedError",
    "UsageError",
    "WaitTimeoutError",
    "Waiting",
    "connect",
    "literal",
    "raw",
]
