"""The client: starts executions, finds them, and watches them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from typing import Any

from belay import _requests
from belay._aio.approvals import AsyncApprovals
from belay._aio.execution import AsyncExecution
from belay._aio.streams import AsyncExecutionUpdates
from belay._aio.transport import AsyncTransport
from belay._calls import METHODS
from belay._watching import ExecutionsWatch
from belay.errors import FieldViolation, UsageError
from belay.models import ExecutionInfo
from belay.plans import PlanLike
from belay.settings import TLS, Settings


class AsyncClient:
    """A client of one Belay server and one namespace. `connect` makes it; it is a context manager that closes its connection."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._transport = AsyncTransport(settings)
        self._approvals = AsyncApprovals(self._transport)

    @classmethod
    async def connect(
        cls,
        url: str | None = None,
        token: str | None = None,
        tls: TLS | bool | None = None,
        *,
        namespace: str | None = None,
        gate: str | None = None,
        timeout: float = 30.0,
        retry_for: float = 10.0,
        reconnect_for: float = 60.0,
        heartbeat: float = 10.0,
    ) -> AsyncClient:
        """Makes a client. The connection itself is made by the first call, and again whenever it is lost.

        What is not given comes from the environment: `url` from BELAY_SERVER, else the socket of the server that holds the state directory of this user
        (BELAY_STATE_DIR); `token` from BELAY_TOKEN; `tls` from BELAY_TLS_CA, BELAY_TLS_CERT and BELAY_TLS_KEY (paths); `namespace` from BELAY_NAMESPACE,
        else `default` (`-` reads those of all namespaces); `gate`, the address of an approval gate that is not at the server's, from BELAY_GATE.

        A `url` is `unix:/path`, `http://host:port` or `https://host:port`. A token is sent without encryption only to this machine, or with `tls=False`.

        Times are in seconds: `timeout` for each call; `retry_for` for how long a call that is safe to repeat is repeated while the server does not answer;
        `reconnect_for` for how long watches and waits connect again without success; `heartbeat` for how often the server shows on a quiet watch that it is
        there. Raises `UsageError` for a setting that is not valid.
        """
        return cls(Settings.resolve(url, token, tls, namespace, gate, timeout, retry_for, reconnect_for, heartbeat))

    @property
    def namespace(self) -> str:
        """The namespace of the executions that the client starts and lists."""
        return self._settings.namespace

    @property
    def url(self) -> str:
        """The address of the server."""
        return self._settings.server.url

    @property
    def approvals(self) -> AsyncApprovals:
        """The approvals and forms of the namespace."""
        return self._approvals

    async def close(self) -> None:
        """Closes the connection; open calls are cancelled. Executions continue."""
        await self._transport.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r}, namespace={self.namespace!r})"

    async def start(
        self,
        plan: PlanLike,
        *,
        inputs: Mapping[str, Any] | None = None,
        workspace: Any = None,
        key: str | None = None,
        id: str | None = None,
        labels: Mapping[str, str] | None = None,
        approval_mode: str | None = None,
        start_paused: bool = False,
        start_time: datetime | None = None,
        step_timeout: float | None = None,
    ) -> AsyncExecution:
        """Starts an execution of a plan; it is durable when this returns.

        `plan` is a dict, a `belay.Plan`, or the path of a YAML or JSON file. `workspace` is the absolute path of a directory on the server's machine, without
        which the execution gets a new one. The same `key` with the same request starts one execution, however often; without one the client makes a key, so
        that its own repetitions are safe. `approval_mode` is WAIT (the default), FAIL, SKIP or AUTO. `step_timeout` is in seconds.

        Raises `InvalidArgumentError` with a field violation for each problem of the plan, and `AlreadyExistsError` when the id is taken or the key was used
        for another request.
        """
        request = _requests.start(
            self.namespace,
            plan,
            inputs=inputs,
            workspace=workspace,
            key=key,
            id=id,
            labels=labels,
            approval_mode=approval_mode,
            start_paused=start_paused,
            start_time=start_time,
            step_timeout=step_timeout,
            validate_only=False,
        )
        answer = await self._transport.call("ExecutorService/StartExecution", request)
        return AsyncExecution(self._transport, answer.name, ExecutionInfo._from(answer))

    async def validate(self, plan: PlanLike) -> list[FieldViolation]:
        """Checks a plan as `start` does, and starts nothing. Returns its problems; none means that it would be accepted."""
        answer = await self._transport.call("ExecutorService/ValidatePlan", _requests.validate(self.namespace, plan))
        return [FieldViolation(one.field, one.message, one.line, one.column) for one in answer.violations]

    def execution(self, execution: str | ExecutionInfo | AsyncExecution) -> AsyncExecution:
        """Returns a handle of an execution by its id, its name, or what a list returned. Asks the server nothing."""
        info = execution if isinstance(execution, ExecutionInfo) else None
        return AsyncExecution(self._transport, _requests.execution_name(execution, self.namespace), info)

    async def executions(
        self,
        filter: str | None = None,
        *,
        order_by: str | None = None,
        include_children: bool = False,
        page_size: int = 0,
    ) -> AsyncIterator[ExecutionInfo]:
        """Yields the executions of the namespace that match, the newest first; pages are asked for as they are needed.

        `filter` is such as `state = FAILED AND labels.team = "a"`, and `order_by` is `create_time` or `end_time`, with ` desc` for the latest first. Executions
        that carry out the plans of steps are left out, unless `include_children` is set.
        """
        request = _requests.list_executions(self.namespace, filter, order_by, include_children, page_size)
        while True:
            page = await self._transport.call("ExecutorService/ListExecutions", request)
            for raw in page.executions:
                yield ExecutionInfo._from(raw)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    def watch_executions(
        self, filter: str | None = None, *, after: Any = None, include_children: bool = False
    ) -> AsyncExecutionUpdates:
        """Returns the stream of the executions that match: all in their current state, then each that changes or is removed.

        It shows states, not each event, and a slow reader misses states in between. `after` is the cursor of an earlier update (good for 10 minutes at least,
        then a `reset` comes).
        """
        watch = ExecutionsWatch(self.namespace, filter, include_children, after, self._settings.heartbeat)
        return AsyncExecutionUpdates(self._transport, watch)

    async def call(self, method: str, request: Any, *, timeout: float | None = None) -> Any:
        """Calls any unary method of the contract, such as `ExecutorService/ExplainExecution`, with a message of `belay.raw`, and returns its answer.

        The call has the client's credentials, errors and deadlines, and is repeated where the contract says that it is safe.
        """
        known = METHODS.get(method)
        if known is None or known.is_streaming:
            names = ", ".join(sorted(name for name, one in METHODS.items() if not one.is_streaming))
            raise UsageError(f"`method` is {method!r}, and has to be one of {names}.", field="method")
        if not isinstance(request, known.request):
            raise UsageError(f"`request` of {method} is a {known.request.DESCRIPTOR.full_name}.", field="request")
        return await self._transport.call(method, request, timeout)
