"""Watches without their connections: which request continues a watch, and what its messages mean.

An execution's watch yields each stored event once and in order. The server resumes after the cursor of the request; what it may send twice is dropped by its
number, and a number that is missing is not accepted: the watch connects again at the last good cursor.
"""

from __future__ import annotations

from typing import Any

from belay import _values
from belay._requests import parent_of
from belay.errors import ContractError, UsageError
from belay.models import Event, ExecutionInfo, ExecutionUpdate, Removed, reset_reason
from belay.v1 import approval_service_pb2 as gate_api
from belay.v1 import event_pb2
from belay.v1 import executor_service_pb2 as api

_KINDS = event_pb2.ExecutionEvent.DESCRIPTOR.oneofs_by_name["kind"]


class Gap(Exception):
    """An event is missing in the stream: the watch has to connect again."""


def _cursor(after: Any) -> str:
    cursor = getattr(after, "cursor", after)
    if cursor is None:
        return ""
    if not isinstance(cursor, str) or not cursor:
        raise UsageError(f"`after` is {after!r}: give the `cursor` of an event or an update, or None for everything.", field="after")
    return cursor


class ExecutionWatch:
    """The watch of one execution."""

    def __init__(self, name: str, after: Any, output: bool, heartbeat: float) -> None:
        self._name = name
        self._cursor = _cursor(after)
        self._output = output
        self._heartbeat = _values.to_duration(heartbeat, "heartbeat")
        self._uid = ""
        self._last: int | None = None if self._cursor else 0
        self._snapshot_last, self._snapshot_ended = 0, False
        self._gaps = 0
        self._finished = False

    @property
    def cursor(self) -> str:
        """The position after what was taken; empty before the first message."""
        return self._cursor

    def request(self) -> Any:
        """Returns the request that continues the watch."""
        request = api.WatchExecutionRequest(name=self._name, include_earlier_events=True, heartbeat_interval=self._heartbeat)
        if self._cursor:
            request.cursor = self._cursor
        return request

    def take(self, message: Any) -> Event | None:
        """Returns the event of a message, or None for one that has nothing for the reader."""
        content = message.WhichOneof("content")
        if message.uid:
            self._uid = message.uid
        event = None
        if content == "reset":
            self._last, self._uid = 0, ""
            event = self._event("reset", message, None, message.reset)
        elif content == "snapshot":
            info = ExecutionInfo._from(message.snapshot)
            self._snapshot_last, self._snapshot_ended = info.last_sequence, info.ended
            self._uid = self._uid or info.uid
        elif content == "event":
            event = self._next(message)
        if message.cursor:
            self._cursor = message.cursor
        return event

    def _next(self, message: Any) -> Event | None:
        raw = message.event
        kind = raw.WhichOneof("kind") or "unknown"
        if kind == "unknown" and not raw.safe_to_skip:
            text = (
                f"The event {raw.sequence} of {self._name} is of a kind that this client does not know and must not skip: "
                "upgrade the package `belay`."
            )
            raise ContractError(text, reason="UNKNOWN_EVENT_KIND")
        if raw.ephemeral or raw.sequence == 0:
            return self._event(kind, message, raw, None) if self._output else None
        if self._last is not None and raw.sequence <= self._last:
            return None
        if self._last is not None and raw.sequence != self._last + 1:
            self._gaps += 1
            if self._gaps > 1:
                text = f"The server leaves out events of {self._name}: {raw.sequence} follows {self._last}, also after a new connection."
                raise ContractError(text, reason="EVENT_GAP")
            raise Gap
        self._gaps = 0
        self._last = raw.sequence
        self._finished = kind == "execution_finished"
        return self._event(kind, message, raw, None)

    def _event(self, kind: str, message: Any, raw: Any, reset: Any) -> Event:
        return Event(
            kind,
            raw.sequence if raw is not None else 0,
            raw.step_id if raw is not None else "",
            raw.attempt if raw is not None else 0,
            _values.to_time(raw, "record_time") if raw is not None else None,
            raw.actor.principal if raw is not None else "",
            message.cursor or self._cursor,
            self._name,
            self._uid,
            reset_reason(reset) if reset is not None else "",
            reset if reset is not None else (getattr(raw, kind) if kind in _KINDS_BY_NAME else None),
            raw if raw is not None else message,
        )

    def is_complete(self) -> bool:
        """Whether the end of the stream was the end of the execution, and not a connection that was closed as if it were."""
        if self._finished:
            return True
        return self._snapshot_ended and (self._last is None or self._last >= self._snapshot_last)


_KINDS_BY_NAME = frozenset(field.name for field in _KINDS.fields)


class _StateWatch:
    """A watch that shows states: of executions, or of approvals."""

    def __init__(self, after: Any, heartbeat: float) -> None:
        self._cursor = _cursor(after)
        self._heartbeat = _values.to_duration(heartbeat, "heartbeat")
        self._has_shown = False

    @property
    def cursor(self) -> str:
        """The position after what was taken; empty while the first list is not complete."""
        return self._cursor

    def is_complete(self) -> bool:
        """Such a watch never ends."""
        return False

    def interrupted(self) -> bool:
        """Whether a new connection starts from the beginning, although the reader has seen a part."""
        begins_anew = self._has_shown and not self._cursor
        self._has_shown = self._has_shown and not begins_anew
        return begins_anew


class ExecutionsWatch(_StateWatch):
    """The watch of the executions of a namespace."""

    def __init__(self, namespace: str, filter: str | None, include_children: bool, after: Any, heartbeat: float) -> None:
        super().__init__(after, heartbeat)
        self._fields: dict[str, Any] = {"parent": f"namespaces/{namespace}", "include_children": include_children}
        if filter:
            self._fields["filter"] = filter

    def request(self) -> Any:
        """Returns the request that continues the watch."""
        request = api.WatchExecutionsRequest(heartbeat_interval=self._heartbeat, **self._fields)
        if self._cursor:
            request.cursor = self._cursor
        return request

    def take(self, message: Any) -> ExecutionUpdate | None:
        """Returns the update of a message, or None for a heartbeat."""
        content = message.WhichOneof("content")
        self._cursor = message.cursor or self._cursor
        if content == "reset":
            # The cursor that was refused leads nowhere any more.
            self._cursor = message.cursor
            return ExecutionUpdate("reset", None, None, self._cursor, reset_reason(message.reset))
        self._has_shown = True
        if content == "execution":
            return ExecutionUpdate("changed", ExecutionInfo._from(message.execution), None, self._cursor)
        if content == "removed":
            return ExecutionUpdate("removed", None, Removed(message.removed.name, message.removed.deleted), self._cursor)
        return ExecutionUpdate("listed", None, None, self._cursor) if content == "listed" else None

    def restart(self) -> ExecutionUpdate:
        """Returns the update that says that a new connection begins with everything again."""
        return ExecutionUpdate("reset", None, None, "", "INTERRUPTED")


class ApprovalsWatch(_StateWatch):
    """The watch of the approvals of a namespace, or of one execution."""

    def __init__(self, namespace: str, execution: str | None, after: Any, heartbeat: float) -> None:
        super().__init__(after, heartbeat)
        self._fields = {"parent": parent_of(execution, namespace)}
        if execution is not None:
            self._fields["execution"] = execution

    def request(self) -> Any:
        """Returns the request that continues the watch."""
        request = gate_api.WatchApprovalsRequest(heartbeat_interval=self._heartbeat, **self._fields)
        if self._cursor:
            request.cursor = self._cursor
        return request

    def take(self, message: Any) -> tuple[str, Any, str, str] | None:
        """Returns the kind, the approval's message, the cursor and the reason of a reset; None for a heartbeat."""
        content = message.WhichOneof("content")
        self._cursor = message.cursor or self._cursor
        if content == "reset":
            self._cursor = message.cursor
            return ("reset", None, self._cursor, reset_reason(message.reset))
        self._has_shown = True
        if content == "approval":
            return ("changed", message.approval, self._cursor, "")
        return ("listed", None, self._cursor, "") if content == "listed" else None

    def restart(self) -> tuple[str, Any, str, str]:
        """Returns what says that a new connection begins with everything again."""
        return ("reset", None, "", "INTERRUPTED")
