"""The values that the client returns. Each has the message that it was made from as `raw`, with all fields of the contract.

States, kinds and classes are the contract's words without their prefix, such as `COMPLETED`. They are texts and not enums, because a newer server may
have more of them. Times are in UTC, durations in seconds, sizes in bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from belay import _values
from belay._values import Blob, enum_word
from belay.v1 import approval_pb2, artifact_pb2, effect_pb2, execution_pb2, failure_pb2, watch_pb2
from belay.v1 import waiting_reason_pb2 as waiting_pb2

#: The states in which an execution has ended.
ENDED = frozenset({"COMPLETED", "PARTIAL", "FAILED", "CANCELLED", "TIMED_OUT"})


@dataclass(frozen=True)
class Failure:
    """The failure of a call, a step or an execution."""

    #: The class, which decides whether to retry, such as `TRANSIENT`.
    error_class: str
    #: A sentence for a person.
    message: str
    #: A stable identifier for programs, such as `TOOL_FAILED`.
    reason: str
    #: Whether the failure could be retried, if attempts were left.
    retryable: bool
    #: Facts by key, such as `exit_code`.
    metadata: dict[str, str]
    #: Seconds to wait before a retry can succeed, or None when that is not known.
    retry_after: float | None
    #: The end of the standard output and the standard error of the call's program.
    last_stdout: str
    last_stderr: str
    #: The failure that led to it, or None.
    cause: Failure | None
    raw: Any = field(repr=False, compare=False)

    @staticmethod
    def _from(message: Any, name: str) -> Failure | None:
        if not message.HasField(name):
            return None
        raw = getattr(message, name)
        return Failure(
            enum_word(failure_pb2.ErrorClass, raw.error_class, "ERROR_CLASS_"),
            raw.message,
            raw.reason,
            raw.retryable,
            dict(raw.metadata),
            _values.to_seconds(raw, "retry_after"),
            raw.last_output.stdout,
            raw.last_output.stderr,
            Failure._from(raw, "cause"),
            raw,
        )


@dataclass(frozen=True)
class Waiting:
    """The reason for which an execution or a step waits."""

    #: The kind of the wait, such as `APPROVAL`, `SIGNAL` or `FORM`.
    kind: str
    #: The party or the event that ends the wait, in words.
    who: str
    #: When the wait began, and when it ends or fails; None when that is not known.
    begin_time: datetime | None
    until_time: datetime | None
    #: The command to type to continue.
    next_command: str
    raw: Any = field(repr=False, compare=False)

    @staticmethod
    def _from(raw: Any) -> Waiting:
        kind = enum_word(waiting_pb2.WaitingReason.Kind, raw.kind, "KIND_")
        return Waiting(kind, raw.who, _values.to_time(raw, "begin_time"), _values.to_time(raw, "until_time"), raw.next_command, raw)


@dataclass(frozen=True)
class ExecutionInfo:
    """An execution as it was when the server answered."""

    #: `namespaces/*/executions/*`.
    name: str
    #: The last part of the name.
    id: str
    #: A random id: an execution that was deleted and created again under the same name has another.
    uid: str
    #: The state, such as `RUNNING` or `COMPLETED`.
    state: str
    plan_id: str
    labels: dict[str, str]
    #: The directory that its tools are confined to; empty when the tool runner made one, whose id is `made_folder`.
    workspace: str
    made_folder: str
    #: The principal that started it.
    principal: str
    #: The tag that changes whenever the execution does; changes take it as `etag`.
    etag: str
    #: The number of its last event.
    last_sequence: int
    #: How often its plan was changed since it began.
    plan_revision: int
    create_time: datetime | None
    start_time: datetime | None
    end_time: datetime | None
    deadline_time: datetime | None
    #: The failure of the first step that failed, or None.
    failure: Failure | None
    #: The reasons for which it waits; empty when it has ended.
    waiting: tuple[Waiting, ...]
    #: How many steps there are, and how many have ended in each state: `total`, `completed`, `failed`, `skipped`, `cancelled`.
    totals: dict[str, int]
    #: The values of its plan's inputs, and the outputs that its plan declares: JSON values, a `Blob` when they are large, None when there are none or in a
    #: list.
    inputs: Any
    outputs: Any
    #: The reason for which an execution that has ended has no outputs, although its plan declares some.
    outputs_failure: Failure | None
    raw: Any = field(repr=False, compare=False)

    @property
    def ended(self) -> bool:
        """Whether the execution has ended. One that has ended continues only when it is retried."""
        return self.state in ENDED

    @property
    def succeeded(self) -> bool:
        """Whether the execution has ended COMPLETED."""
        return self.state == "COMPLETED"

    @staticmethod
    def _from(raw: Any) -> ExecutionInfo:
        totals = {name: getattr(raw.totals, name) for name in ("total", "completed", "failed", "skipped", "cancelled")}
        return ExecutionInfo(
            raw.name,
            raw.name.rpartition("/")[2],
            raw.uid,
            enum_word(execution_pb2.Execution.State, raw.state, "STATE_"),
            raw.plan_id,
            dict(raw.labels),
            raw.workspace,
            raw.made_folder,
            raw.principal,
            raw.etag,
            raw.last_sequence,
            raw.plan_revision,
            _values.to_time(raw, "create_time"),
            _values.to_time(raw, "start_time"),
            _values.to_time(raw, "end_time"),
            _values.to_time(raw, "deadline_time"),
            Failure._from(raw, "failure"),
            tuple(Waiting._from(one) for one in raw.waiting),
            totals,
            _values.from_payload(raw, "inputs"),
            _values.from_payload(raw, "outputs"),
            Failure._from(raw, "outputs_failure"),
            raw,
        )


@dataclass(frozen=True)
class StepInfo:
    """A step of an execution as it was when the server answered."""

    #: `namespaces/*/executions/*/steps/*`.
    name: str
    #: The id of the step in the plan; of an entry of a list, `STEP~0` and so on.
    id: str
    title: str
    #: The state, such as `RUNNING` or `COMPLETED`.
    state: str
    #: The number of the current or last attempt, from 1; 0 before the first.
    attempt: int
    max_attempts: int
    start_time: datetime | None
    end_time: datetime | None
    #: The output: a JSON value, a `Blob` when it is large, None when it has none or was not asked for (`full`).
    output: Any
    #: The size of the output.
    output_bytes: int
    #: The last failure, or None.
    failure: Failure | None
    #: The reason for which it was skipped, such as `DEPENDENCY_FAILED`, and the step that caused it; empty when it was not skipped.
    skip_reason: str
    skipped_because: str
    waiting: Waiting | None
    #: The names of the approvals it waits for.
    approvals: tuple[str, ...]
    raw: Any = field(repr=False, compare=False)

    @staticmethod
    def _from(raw: Any) -> StepInfo:
        return StepInfo(
            raw.name,
            raw.step_id,
            raw.title,
            enum_word(execution_pb2.Step.State, raw.state, "STATE_"),
            raw.attempt,
            raw.max_attempts,
            _values.to_time(raw, "start_time"),
            _values.to_time(raw, "end_time"),
            _values.from_payload(raw, "output"),
            raw.output_bytes,
            Failure._from(raw, "failure"),
            enum_word(execution_pb2.SkipReason, raw.skip_reason, "SKIP_REASON_"),
            raw.skipped_because,
            Waiting._from(raw.waiting) if raw.HasField("waiting") else None,
            tuple(raw.approvals),
            raw,
        )


@dataclass(frozen=True)
class Artifact:
    """A product of an execution: the output of a step (`OUTPUT`), or a file that a call committed (`FILE`)."""

    #: `namespaces/*/executions/*/artifacts/*`.
    name: str
    #: `OUTPUT` or `FILE`.
    kind: str
    #: The step that made it.
    step_id: str
    #: The number of the event that made it.
    sequence: int
    create_time: datetime | None
    media_type: str
    size_bytes: int
    #: `sha256:` over the content; `hmac-sha256:` for an output of more than 32 KiB.
    digest: str
    #: The names of the artifacts that it derives from.
    derives_from: tuple[str, ...]
    #: The path in the workspace and how it changed (`CREATED`, `MODIFIED`, `DELETED`), for a FILE.
    path: str
    change: str
    raw: Any = field(repr=False, compare=False)

    @staticmethod
    def _from(raw: Any) -> Artifact:
        return Artifact(
            raw.name,
            enum_word(artifact_pb2.Artifact.Kind, raw.kind, "KIND_"),
            raw.step_id,
            raw.sequence,
            _values.to_time(raw, "create_time"),
            raw.media_type,
            raw.size_bytes,
            raw.digest,
            tuple(raw.derives_from),
            raw.path,
            enum_word(effect_pb2.PathChange.Kind, raw.change, "KIND_"),
            raw,
        )


@dataclass(frozen=True)
class Event:
    """An event of an execution, as `Execution.events` yields it.

    `kind` is the name of a field of `ExecutionEvent.kind`, such as `step_completed`, and `detail` the message of that field. Two kinds are the client's:
    `reset` (`sequence` 0) says that the server cannot continue from the cursor, so the reader forgets what it knows and all events follow from the first;
    `unknown` is a kind of a newer server that can be skipped.
    """

    kind: str
    #: 1, 2, 3, … without gaps in one execution; 0 for live output and for a reset, which are not stored.
    sequence: int
    #: The step it is about; empty when it is about the execution.
    step_id: str
    #: The attempt it is about, from 1; 0 for a step that never started.
    attempt: int
    #: When it was recorded.
    time: datetime | None
    #: The principal on whose behalf it happened; empty for what Belay decided itself.
    actor: str
    #: The position after this event, which `events(after=…)` takes, also in another process.
    cursor: str
    #: The execution, `namespaces/*/executions/*`, and its random id.
    execution: str
    uid: str
    #: The reason of a reset: `LOST` or `TOO_OLD`.
    reset_reason: str
    #: The message of the kind; None for an unknown kind.
    detail: Any = field(repr=False, compare=False)
    raw: Any = field(repr=False, compare=False)

    @property
    def id(self) -> str:
        """The globally unique id of a stored event: the execution's uid, a dot, and the sequence."""
        return f"{self.uid}.{self.sequence}"

    @property
    def failure(self) -> Failure | None:
        """The failure that the event is about, or None."""
        if self.detail is None or "failure" not in self.detail.DESCRIPTOR.fields_by_name:
            return None
        return Failure._from(self.detail, "failure")

    @property
    def text(self) -> str:
        """The output of a program, for live output (`tool_call_output`); empty otherwise."""
        return str(self.detail.text) if self.kind == "tool_call_output" else ""


@dataclass(frozen=True)
class Removed:
    """An execution that a watch no longer shows."""

    #: `namespaces/*/executions/*`.
    name: str
    #: Whether it was deleted; otherwise the filter leaves it out now.
    deleted: bool


@dataclass(frozen=True)
class ExecutionUpdate:
    """A message of a watch of executions. `kind` says which one:

    - `changed`: `execution` is an execution that matches, in its current state. It may come again without a change;
    - `removed`: `removed` is one that was deleted or matches no longer;
    - `listed`: all executions have come that there were; what follows happens now. After a `reset`, and in a watch from the beginning, what has not come
      until now is no longer there;
    - `reset`: the watch starts again from the beginning: forget what you know.
    """

    kind: str
    execution: ExecutionInfo | None
    removed: Removed | None
    #: The position after this message, which `watch_executions(after=…)` takes; empty while the first list is not complete.
    cursor: str
    #: The reason of a reset: `LOST`, `TOO_OLD` or `INTERRUPTED` (before the first list was complete).
    reset_reason: str = ""


@dataclass(frozen=True)
class PathChange:
    """The change of one path, as an approval shows it before it is made."""

    #: The path in the workspace; `hex:` and digits when it is not UTF-8.
    path: str
    #: `CREATED`, `MODIFIED` or `DELETED`.
    kind: str
    #: Reasons to look carefully, such as `executable` or `protected`.
    flags: tuple[str, ...]
    #: The place among the changes of the approval, the gravest first, from 0.
    index: int
    raw: Any = field(repr=False, compare=False)

    @staticmethod
    def _from(raw: Any) -> PathChange:
        return PathChange(raw.path, enum_word(effect_pb2.PathChange.Kind, raw.kind, "KIND_"), tuple(raw.flags), raw.index, raw)


@dataclass(frozen=True)
class Form:
    """A form that a person answers."""

    #: The question, in one line.
    title: str
    #: The information that a person needs to answer.
    description: str
    #: The JSON Schema that the answer has to match.
    schema: Any


def approval_state(raw: Any) -> str:
    """Returns the word of an approval's state, such as `PENDING`."""
    return enum_word(approval_pb2.Approval.State, raw.state, "STATE_")


def reset_reason(raw: Any) -> str:
    """Returns the word of the reason of a reset."""
    return enum_word(watch_pb2.WatchReset.Reason, raw.reason, "REASON_")


__all__ = [
    "ENDED",
    "Artifact",
    "Blob",
    "Event",
    "ExecutionInfo",
    "ExecutionUpdate",
    "Failure",
    "Form",
    "PathChange",
    "Removed",
    "StepInfo",
    "Waiting",
]
