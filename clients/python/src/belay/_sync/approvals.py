# Made from ../_aio/approvals.py by clients/python/generate; change that file instead.
"""Approvals and forms: questions to a person, bound to the digest of what was shown."""

from __future__ import annotations

import json
from collections.abc import Iterator, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from belay import _requests, _values
from belay._sync.streams import WatchStream
from belay._sync.transport import Transport
from belay._values import enum_word
from belay._watching import ApprovalsWatch
from belay.errors import UsageError
from belay.models import Form, PathChange, approval_state
from belay.v1 import tool_call_pb2
from belay.v1 import approval_service_pb2 as gate_api


class Approval:
    """An approval as it was when the server answered: may this call run, may this effect be committed, or how is this form answered?

    `approve`, `deny`, `skip` and `answer` send the digest of what this object shows, so that nothing else can be decided by it. They raise
    `PreconditionError` when it is another digest (DIGEST_MISMATCH) or was decided before (ALREADY_DECIDED), and `PermissionDeniedError` when the caller may
    not decide. They return the approval after the decision.
    """

    def __init__(self, transport: Transport, raw: Any) -> None:
        self._transport = transport
        #: The message with all fields of the contract.
        self.raw = raw

    @property
    def name(self) -> str:
        """`namespaces/*/approvals/*`."""
        return str(self.raw.name)

    @property
    def id(self) -> str:
        """The last part of the name."""
        return self.name.rpartition("/")[2]

    @property
    def state(self) -> str:
        """The state, such as `PENDING`, `APPROVED`, `DENIED` or `ANSWERED`."""
        return approval_state(self.raw)

    @property
    def is_pending(self) -> bool:
        """Whether it waits for a decision."""
        return self.state == "PENDING"

    @property
    def kind(self) -> str:
        """The kind of its subject: `CALL` (before it runs), `EFFECT` (it has run, and nothing is committed), or `FORM`."""
        return enum_word(tool_call_pb2.ApprovalNeed.Kind, self.raw.kind, "KIND_")

    @property
    def execution(self) -> str:
        """The execution that waits, `namespaces/*/executions/*`."""
        return str(self.raw.execution)

    @property
    def step_id(self) -> str:
        """The step that waits."""
        return str(self.raw.step_id)

    @property
    def tool(self) -> str:
        """The tool's name; empty for a form."""
        return str(self.raw.tool)

    @property
    def operation(self) -> str:
        """The operation of the call, in one line; the title of a form."""
        return str(self.raw.operation)

    @property
    def risk(self) -> str:
        """The harm that it may do: `LOW`, `MEDIUM` or `HIGH`; empty for a form."""
        return enum_word(tool_call_pb2.Risk, self.raw.risk, "RISK_")

    @property
    def digest(self) -> str:
        """The digest of its subject, `sha256:…`, which a decision sends."""
        return str(self.raw.subject_digest)

    @property
    def requested_by(self) -> str:
        """The principal who started the execution."""
        return str(self.raw.requested_by)

    @property
    def request_reason(self) -> str:
        """The plan's reason for the call. It explains, and authorizes nothing."""
        return str(self.raw.request_reason)

    @property
    def rule(self) -> str:
        """The policy's rule that requires the approval; empty for a form."""
        return str(self.raw.decision.rule)

    @property
    def decided_by(self) -> str:
        """The principal that has decided; empty while it is pending."""
        return str(self.raw.decided_by)

    @property
    def decide_reason(self) -> str:
        """The reason that the principal gave."""
        return str(self.raw.decide_reason)

    @property
    def create_time(self) -> datetime | None:
        """The time of its creation."""
        return _values.to_time(self.raw, "create_time")

    @property
    def expire_time(self) -> datetime | None:
        """The time at which it expires, which counts as denied; None means never."""
        return _values.to_time(self.raw, "expire_time")

    @property
    def totals(self) -> dict[str, int]:
        """The numbers of paths that the call would create, modify and delete: `created`, `modified`, `deleted`."""
        return {name: getattr(self.raw.effect, name) for name in ("created", "modified", "deleted")}

    @property
    def form(self) -> Form | None:
        """The form, once `show` has read it; None for what is no form."""
        if not self.raw.HasField("form"):
            return None
        form = self.raw.form
        return Form(form.title, form.description, json.loads(form.schema) if form.schema else {})

    @property
    def headline(self) -> str:
        """The command, or the tool and its arguments, in a few lines, once `show` has read it."""
        return str(self.raw.preview.headline)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.state}, {self.operation!r})"

    def show(self) -> Approval:
        """Returns the approval with all that a person needs: its preview, its subject, or its form. Lists leave them out."""
        request = gate_api.GetApprovalRequest(name=self.name, view="APPROVAL_VIEW_FULL")
        return Approval(self._transport, self._transport.call("ApprovalService/GetApproval", request))

    def changes(self, *, page_size: int = 0) -> Iterator[PathChange]:
        """Yields every path that the call would change, the gravest first, from the exact bytes that the decision is about."""
        request = gate_api.ListApprovalChangesRequest(name=self.name, page_size=page_size)
        while True:
            page = self._transport.call("ApprovalService/ListApprovalChanges", request)
            for raw in page.changes:
                yield PathChange._from(raw)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    def diff(self, change: PathChange | int) -> str:
        """Returns the difference in one file as a unified diff; empty when there is no text to show. Raises `PreconditionError` once the call no longer
        waits (CONTENTS_GONE)."""
        index = change.index if isinstance(change, PathChange) else change
        request = gate_api.GetApprovalChangeRequest(name=self.name, index=index)
        parts = []
        while True:
            page = self._transport.call("ApprovalService/GetApprovalChange", request)
            parts.append(page.change.unified)
            if not page.next_page_token:
                return "".join(parts)
            request.page_token = page.next_page_token

    def approve(self, note: str = "", *, key: str | None = None) -> Approval:
        """Approves it, once. The plan's author sees the note (at most 2,000 characters)."""
        return self._decide("DECISION_APPROVE", note, key)

    def deny(self, reason: str, *, key: str | None = None) -> Approval:
        """Denies it: the step fails, and the plan's author sees the reason."""
        if not reason:
            raise UsageError("`reason` is empty: say for the plan's author why it is denied.", field="reason")
        return self._decide("DECISION_DENY", reason, key)

    def skip(self, reason: str = "", *, key: str | None = None) -> Approval:
        """Denies it so that the step is skipped instead of failing."""
        return self._decide("DECISION_SKIP", reason, key)

    def answer(self, answer: Any, *, key: str | None = None) -> Approval:
        """Answers a form with a JSON value that matches its schema. Raises `InvalidArgumentError` with the JSON pointer of each problem."""
        request = _requests.answer(self.name, self.digest, answer, key)
        return Approval(self._transport, self._transport.call("ApprovalService/AnswerForm", request))

    def _decide(self, decision: str, reason: str, key: str | None) -> Approval:
        request = _requests.decide(self.name, self.digest, decision, reason, key)
        return Approval(self._transport, self._transport.call("ApprovalService/DecideApproval", request))


@dataclass(frozen=True)
class ApprovalUpdate:
    """A message of a watch of approvals. `kind` says which one:

    - `changed`: `approval` is an approval in its current state;
    - `listed`: all approvals have come that there were; what follows happens now;
    - `reset`: the watch starts again from the beginning: forget what you know.
    """

    kind: str
    approval: Approval | None
    #: The position after this message, which `watch(after=…)` takes.
    cursor: str
    #: The reason of a reset: `LOST`, `TOO_OLD` or `INTERRUPTED`.
    reset_reason: str = ""


class ApprovalUpdates(WatchStream[ApprovalUpdate]):
    """The approvals of a namespace or an execution as they change. It does not end."""

    def __init__(self, transport: Transport, watch: ApprovalsWatch) -> None:
        super().__init__(transport, "ApprovalService/WatchApprovals", watch)

    def _take(self, message: Any) -> ApprovalUpdate | None:
        return self._update(self._watch.take(message))

    def _restart(self) -> ApprovalUpdate | None:
        return self._update(self._watch.restart() if self._watch.interrupted() else None)

    def _update(self, taken: Any) -> ApprovalUpdate | None:
        if taken is None:
            return None
        kind, raw, cursor, reason = taken
        return ApprovalUpdate(kind, None if raw is None else Approval(self._transport, raw), cursor, reason)


class Approvals:
    """The approvals and forms of a namespace."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def get(self, approval: str) -> Approval:
        """Returns one approval with all that a person needs, by its id or name."""
        name = _requests.approval_name(approval, self._transport.settings.namespace)
        request = gate_api.GetApprovalRequest(name=name, view="APPROVAL_VIEW_FULL")
        return Approval(self._transport, self._transport.call("ApprovalService/GetApproval", request))

    def list(
        self, *, execution: Any = None, states: Iterable[str] = ("PENDING",), id_prefix: str | None = None, page_size: int = 0
    ) -> Iterator[Approval]:
        """Yields the approvals in these states, pending ones first; pages are asked for as they are needed. No states means all."""
        request = _requests.list_approvals(self._transport.settings.namespace, execution, states, id_prefix, page_size)
        while True:
            page = self._transport.call("ApprovalService/ListApprovals", request)
            for raw in page.approvals:
                yield Approval(self._transport, raw)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    def watch(self, *, execution: Any = None, after: Any = None) -> ApprovalUpdates:
        """Returns the stream of the approvals: all in their current state, then each that changes. `after` is the cursor of an earlier update."""
        settings = self._transport.settings
        name = None if execution is None else _requests.execution_name(execution, settings.namespace)
        watch = ApprovalsWatch(settings.namespace, name, after, settings.heartbeat)
        return ApprovalUpdates(self._transport, watch)


__all__ = ["Approval", "ApprovalUpdate", "ApprovalUpdates", "Approvals"]
