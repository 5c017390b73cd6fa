# Made from ../_aio/execution.py by clients/python/generate; change that file instead.
"""The handle of one execution."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from belay import _requests
from belay._sync.approvals import Approval, Approvals
from belay._sync.streams import EventStream
from belay._sync.transport import MessageStream, Transport
from belay._calls import Reconnection
from belay._values import Blob
from belay._watching import ExecutionWatch
from belay.errors import BelayError, DataLossError, ExecutionFailedError, WaitTimeoutError
from belay.models import Artifact, ExecutionInfo, StepInfo
from belay.plans import PlanLike

#: The longest wait of one request, in seconds.
_LONGEST_WAIT = 50.0
#: How long a stream of bytes may be silent, in seconds.
_BYTES_SILENCE = 30.0


class Execution:
    """A handle of an execution, by which it is read, followed and changed. It holds no connection of its own.

    Methods that change something return the execution as it is after the change, take a `reason` for whoever reads the execution later (at most 1,024 bytes),
    and a `key` that makes the same request the same change (the client makes one, so that its repetitions are safe). With `etag` the change is refused with
    `AbortedError` when the execution has changed since. In another state than the change needs, they raise `PreconditionError`.
    """

    def __init__(self, transport: Transport, name: str, info: ExecutionInfo | None = None) -> None:
        self._transport = transport
        self._name = name
        self._info = info

    @property
    def name(self) -> str:
        """`namespaces/*/executions/*`."""
        return self._name

    @property
    def id(self) -> str:
        """The last part of the name."""
        return self._name.rpartition("/")[2]

    @property
    def info(self) -> ExecutionInfo | None:
        """The execution as this handle has last seen it; None when it was never asked for. `get` asks the server."""
        return self._info

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Execution) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def get(self, *, full: bool = False) -> ExecutionInfo:
        """Returns the execution as it is now; with `full` also its inputs and outputs, and in `raw` its plan and steps."""
        return self._ask("GetExecution", _requests.get(self.name, full))

    def wait(self, timeout: float | None = None) -> ExecutionInfo:
        """Returns the execution once it has ended, in whatever state. Raises `WaitTimeoutError` after `timeout` seconds; None waits as long as it takes.

        A server that is restarted meanwhile is waited for, for as long as `reconnect_for` of the client says.
        """
        settings = self._transport.settings
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            longest = _LONGEST_WAIT if end is None else min(_LONGEST_WAIT, max(end - time.monotonic(), 0.0))
            try:
                request = _requests.wait(self.name, longest)
                # The margin is for the way, and for a restart in between.
                answer = self._transport.call(
                    "ExecutorService/WaitExecution", request, longest + settings.reconnect_for + 5.0, settings.reconnect_for
                )
            except BelayError as error:
                if end is not None and time.monotonic() >= end and error.code in ("UNAVAILABLE", "DEADLINE_EXCEEDED"):
                    raise self._late(timeout) from error
                raise
            self._info = ExecutionInfo._from(answer)
            if self._info.ended:
                return self._info
            if end is not None and time.monotonic() >= end:
                raise self._late(timeout)

    def _late(self, timeout: float | None) -> WaitTimeoutError:
        state = f", and is {self._info.state}" if self._info is not None else ""
        return WaitTimeoutError(f"The execution `{self.id}` has not ended within {timeout} s{state}. It continues.", self._info)

    def result(self, timeout: float | None = None) -> Any:
        """Waits for the end and returns the outputs that the plan declares, as a dict; None when it declares none.

        Raises `ExecutionFailedError` when the execution ends in another state than COMPLETED, `WaitTimeoutError` after `timeout` seconds, and
        `DataLossError` when the outputs could not be resolved. Large outputs are read.
        """
        self.wait(timeout)
        info = self.get(full=True)
        outputs = self.read_value(info.outputs) if isinstance(info.outputs, Blob) else info.outputs
        if not info.succeeded:
            raise ExecutionFailedError(info, outputs)
        if info.outputs_failure is not None:
            raise DataLossError(info.outputs_failure.message, reason=info.outputs_failure.reason, code="DATA_LOSS")
        return outputs

    def events(self, after: Any = None, *, output: bool = False) -> EventStream:
        """Returns the stream of the execution's events: each stored event once and in order, however often the connection or the server is lost. It ends
        with the execution.

        `after` is the cursor of an event (or the event), also one of another process: what came after it comes; None means from the first event on. With
        `output` also what programs print comes while they run (`tool_call_output`, sequence 0), which is not stored and may be lost.

        When the server cannot continue from the cursor, an event of the kind `reset` comes: forget what you know; all events follow from the first. An event
        of an unknown kind that must not be skipped raises `ContractError`.
        """
        watch = ExecutionWatch(self.name, after, output, self._transport.settings.heartbeat)
        return EventStream(self._transport, watch)

    def steps(self, *, full: bool = False, page_size: int = 0) -> Iterator[StepInfo]:
        """Yields the steps in the plan's order; with `full` also their outputs (a `Blob` for one of more than 32 KiB)."""
        request = _requests.list_steps(self.name, full, page_size)
        while True:
            page = self._transport.call("ExecutorService/ListSteps", request)
            for raw in page.steps:
                yield StepInfo._from(raw)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    def step(self, step: str | StepInfo) -> StepInfo:
        """Returns one step with its output, by its id."""
        request = _requests.get_step(self.name, step)
        return StepInfo._from(self._transport.call("ExecutorService/GetStep", request))

    def output(self, step: str | StepInfo) -> Any:
        """Returns the output of a step, by its id. A large one is read."""
        known = step if isinstance(step, StepInfo) and step.output is not None else self.step(step)
        return self.read_value(known.output) if isinstance(known.output, Blob) else known.output

    def artifacts(
        self, *, step: Any = None, kind: str | None = None, path_prefix: str | None = None, page_size: int = 0
    ) -> Iterator[Artifact]:
        """Yields the artifacts in the order in which they were made: the outputs of steps (`kind` OUTPUT) and the files that calls committed (FILE)."""
        request = _requests.list_artifacts(self.name, step, kind, path_prefix, page_size)
        while True:
            page = self._transport.call("ExecutorService/ListArtifacts", request)
            for raw in page.artifacts:
                yield Artifact._from(raw)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    def read_artifact(self, artifact: Artifact | str) -> bytes:
        """Returns the content of an OUTPUT, which is JSON text. The contents of files are in the workspace: `PreconditionError`."""
        request = _requests.get_artifact(self.name, artifact)
        return b"".join([piece for piece in self._pieces("ExecutorService/GetArtifact", request, None)])

    def stream_blob(self, blob: Blob | str, *, offset: int = 0) -> Iterator[bytes]:
        """Yields the bytes of a blob from an offset on, in pieces of at most 64 KiB. A connection that is lost is made again where it broke."""
        request = _requests.read_blob(self.name, blob, offset)
        for piece in self._pieces("ExecutorService/ReadBlob", request, blob.size_bytes if isinstance(blob, Blob) else None):
            yield piece

    def read_blob(self, blob: Blob | str) -> bytes:
        """Returns the bytes of a blob. Raises `DataLossError` when it is damaged."""
        return b"".join([piece for piece in self.stream_blob(blob)])

    def read_value(self, blob: Blob | str) -> Any:
        """Returns the value of a blob: its bytes as JSON."""
        return json.loads(self.read_blob(blob))

    def _pieces(self, method: str, request: Any, size: int | None) -> Iterator[bytes]:
        reconnection = Reconnection(self._transport.settings.reconnect_for)
        stream: MessageStream | None = None
        try:
            while True:
                try:
                    stream = self._transport.open(method, request, _BYTES_SILENCE)
                    while (message := stream.read()) is not None:
                        reconnection.contact()
                        if not message.data:
                            continue
                        if message.offset != request.offset:
                            text = f"The server sent the bytes from {message.offset} on, where those from {request.offset} on follow."
                            raise DataLossError(text, reason="BLOB_DAMAGED", code="DATA_LOSS")
                        request.offset += len(message.data)
                        yield message.data
                    break
                except BelayError as error:
                    delay = reconnection.delay_after(error)
                    if delay is None:
                        raise
                self._transport.sleep(delay)
        finally:
            if stream is not None:
                stream.cancel()
        if size is not None and request.offset != size:
            text = f"The server sent {request.offset} bytes of a blob of {size}."
            raise DataLossError(text, reason="BLOB_DAMAGED", code="DATA_LOSS")

    def approvals(self, states: Any = ("PENDING",)) -> list[Approval]:
        """Returns the approvals and forms of the execution in these states; the default are those that wait for a person."""
        approvals = Approvals(self._transport)
        return [approval for approval in approvals.list(execution=self.name, states=states)]

    def cancel(
        self, reason: str = "", *, kill: bool = False, etag: str | None = None, key: str | None = None
    ) -> ExecutionInfo:
        """Cancels the execution: running calls are cancelled and other steps skipped. With `kill` at once, and nothing is undone."""
        return self._ask("CancelExecution", _requests.cancel(self.name, reason, kill, etag, key))

    def pause(
        self,
        reason: str = "",
        *,
        discard_calls: bool = False,
        resume_time: datetime | None = None,
        etag: str | None = None,
        key: str | None = None,
    ) -> ExecutionInfo:
        """Pauses the execution: nothing new starts. `discard_calls` also kills running calls, which run again later; at `resume_time` it resumes automatically."""
        return self._ask("PauseExecution", _requests.pause(self.name, reason, discard_calls, resume_time, etag, key))

    def resume(self, *, etag: str | None = None, key: str | None = None) -> ExecutionInfo:
        """Resumes a paused execution."""
        return self._ask("ResumeExecution", _requests.resume(self.name, etag, key))

    def signal(self, signal: str, payload: Any = None, *, key: str | None = None) -> ExecutionInfo:
        """Sends a signal, whose payload (JSON, at most 32 KiB) becomes the result of the step that waits for it. It is kept until a step does."""
        return self._ask("SignalExecution", _requests.signal(self.name, signal, payload, key))

    def retry(
        self,
        *,
        from_step: Any = None,
        skip_failed: bool = False,
        start_paused: bool = False,
        plan: PlanLike | None = None,
        reason: str = "",
        etag: str | None = None,
        key: str | None = None,
    ) -> ExecutionInfo:
        """Runs the steps again that failed or were stopped, and all that depend on them; what has completed is kept. An execution that has ended continues.

        `from_step` runs again too, with all that depends on it. `skip_failed` skips what failed instead. `plan` takes the place of the plan; what is kept cannot
        change in it.
        """
        request = _requests.retry(self.name, from_step, skip_failed, start_paused, plan, reason, etag, key)
        return self._ask("RetryExecution", request)

    def update_plan(
        self, plan: PlanLike, *, revision: int | None = None, reason: str = "", etag: str | None = None, key: str | None = None
    ) -> ExecutionInfo:
        """Changes the plan of an execution that has not ended: steps that have not started can be changed, removed and added. `revision` is the
        `plan_revision` that the plan was made from."""
        return self._ask("UpdatePlan", _requests.update_plan(self.name, plan, revision, reason, etag, key))

    def fork(
        self,
        *,
        id: str | None = None,
        from_step: Any = None,
        workspace: Any = None,
        start_paused: bool = False,
        after_turn: int | None = None,
        model: str | None = None,
        on_current_files: bool = False,
        reason: str = "",
        key: str | None = None,
    ) -> Execution:
        """Starts another execution of the same plan from this one's state: what has completed, and does not depend on `from_step`, is taken over."""
        request = _requests.fork(
            self.name, id, from_step, workspace, start_paused, after_turn, model, on_current_files, reason, key
        )
        answer = self._transport.call("ExecutorService/ForkExecution", request)
        return Execution(self._transport, answer.name, ExecutionInfo._from(answer))

    def resolve(
        self, step: Any, resolution: str, *, result: Any = None, reason: str = "", etag: str | None = None, key: str | None = None
    ) -> ExecutionInfo:
        """Continues with a step whose outcome was unknown: `resolution` is COMPLETED (with its `result`), FAILED, or AGAIN."""
        return self._ask("ResolveStep", _requests.resolve(self.name, step, resolution, result, reason, etag, key))

    def retry_step(
        self, step: Any, change: str = "NOW", *, reason: str = "", etag: str | None = None, key: str | None = None
    ) -> ExecutionInfo:
        """Changes the next attempt of a step that waits for it: `change` is NOW, CANCEL, or FALLBACK (the step's next call)."""
        return self._ask("RetryStep", _requests.retry_step(self.name, step, change, reason, etag, key))

    def skip_step(self, step: Any, *, reason: str = "", etag: str | None = None, key: str | None = None) -> ExecutionInfo:
        """Skips a step that has not started or waits for its next attempt. What depends on it runs as if it had completed without an output."""
        return self._ask("SkipStep", _requests.skip_step(self.name, step, reason, etag, key))

    def set_step_output(
        self, step: Any, output: Any, *, reason: str = "", etag: str | None = None, key: str | None = None
    ) -> ExecutionInfo:
        """Completes a step that has not started or waits for its next attempt, with this output (JSON, at most 32 KiB), without running it."""
        return self._ask("SetStepOutput", _requests.set_step_output(self.name, step, output, reason, etag, key))

    def delete(self, *, etag: str | None = None, key: str | None = None) -> None:
        """Deletes an execution that has ended, with its events and results. A directory that was named as its workspace stays."""
        self._transport.call("ExecutorService/DeleteExecution", _requests.delete(self.name, etag, key))

    def _ask(self, method: str, request: Any) -> ExecutionInfo:
        self._info = ExecutionInfo._from(self._transport.call(f"ExecutorService/{method}", request))
        return self._info
