"""The requests of the client, made from what its methods take. Names are checked here, so that errors say the argument."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, TypeVar

from belay import _values
from belay._values import enum_number
from belay.errors import UsageError
from belay.plans import to_document
from belay.v1 import approval_pb2, artifact_pb2, execution_pb2
from belay.v1 import approval_service_pb2 as gate_api
from belay.v1 import executor_service_pb2 as api

_EXECUTION = re.compile(r"namespaces/[^/]+/executions/[^/]+")
#: The arguments whose fields have another name.
_ARGUMENTS = {"execution_id": "id", "request_id": "key", "parent": "namespace"}
R = TypeVar("R")

_APPROVAL = re.compile(r"namespaces/[^/]+/approvals/[^/]+")


def new_key() -> str:
    """Returns a key that no other request has."""
    return uuid.uuid4().hex


def execution_name(execution: Any, namespace: str, field: str = "execution") -> str:
    """Returns the name of an execution from its id, its name, or anything with a `name`."""
    execution = getattr(execution, "name", execution)
    return _name(execution, _EXECUTION, f"namespaces/{namespace}/executions/", field)


def approval_name(approval: Any, namespace: str) -> str:
    """Returns the name of an approval from its id, its name, or anything with a `name`."""
    approval = getattr(approval, "name", approval)
    return _name(approval, _APPROVAL, f"namespaces/{namespace}/approvals/", "approval")


def _name(text: Any, pattern: re.Pattern[str], prefix: str, field: str) -> str:
    if isinstance(text, str) and pattern.fullmatch(text):
        return text
    if not isinstance(text, str) or not text or "/" in text:
        raise UsageError(f"`{field}` is {text!r}: give an id, or a name such as `{prefix}ID`.", field=field)
    return prefix + text


def step_name(execution: str, step: Any, field: str = "step") -> str:
    """Returns the name of a step from its id, its name, or anything with an `id`."""
    if hasattr(step, "name") or hasattr(step, "id"):
        step = getattr(step, "name", "") or step.id
    if isinstance(step, str) and step.startswith(f"{execution}/steps/"):
        return step
    if not isinstance(step, str) or not step or "/" in step:
        raise UsageError(f"`{field}` is {step!r}: give the id of a step of {execution}.", field=field)
    return f"{execution}/steps/{step}"


def _build(kind: type[R], **fields: Any) -> R:
    """Makes a message. A value that its field cannot hold is refused by the name of the argument."""
    try:
        return kind(**fields)
    except (TypeError, ValueError) as error:
        for name, value in fields.items():
            try:
                kind(**{name: value})
            except (TypeError, ValueError):
                argument = _ARGUMENTS.get(name, name)
                raise UsageError(f"`{argument}` is {_shortened(value)}, which cannot be sent: {error}.", field=argument) from error
        raise


def _shortened(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:59]}…"


def _present(**fields: Any) -> dict[str, Any]:
    """Returns the fields that are given: an `optional` text that is given and empty is refused by the server."""
    return {name: value for name, value in fields.items() if value is not None}


def start(
    namespace: str,
    plan: Any,
    *,
    inputs: Mapping[str, Any] | None,
    workspace: Any,
    key: str | None,
    id: str | None,
    labels: Mapping[str, str] | None,
    approval_mode: str | None,
    start_paused: bool,
    start_time: datetime | None,
    step_timeout: float | None,
    validate_only: bool,
) -> api.StartExecutionRequest:
    request = _build(
        api.StartExecutionRequest,
        parent=f"namespaces/{namespace}",
        document=to_document(plan),
        start_paused=start_paused,
        validate_only=validate_only,
        request_id=_key(key),
        **_present(execution_id=id, workspace=None if workspace is None else str(workspace)),
    )
    for name, value in (labels or {}).items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise UsageError(f"`labels` has {name!r}: {value!r}, and names and values are texts.", field="labels")
        _build(api.StartExecutionRequest, labels={name: value})
        request.labels[name] = value
    if inputs is not None:
        if not isinstance(inputs, Mapping):
            raise UsageError("`inputs` is a dict with a value for each input of the plan.", field="inputs")
        request.inputs.CopyFrom(_values.to_payload(dict(inputs), "inputs"))
    if approval_mode is not None:
        request.approval_mode = enum_number(execution_pb2.ApprovalMode, approval_mode, "APPROVAL_MODE_", "approval_mode")
    if start_time is not None:
        request.start_time.CopyFrom(_values.to_timestamp(start_time, "start_time"))
    if step_timeout is not None:
        request.step_timeout.CopyFrom(_values.to_duration(step_timeout, "step_timeout"))
    return request


def validate(namespace: str, plan: Any) -> api.ValidatePlanRequest:
    return _build(api.ValidatePlanRequest, parent=f"namespaces/{namespace}", document=to_document(plan))


def get(name: str, full: bool) -> api.GetExecutionRequest:
    return _build(api.GetExecutionRequest, name=name, view="EXECUTION_VIEW_FULL" if full else "EXECUTION_VIEW_BASIC")


def wait(name: str, longest: float) -> api.WaitExecutionRequest:
    return _build(api.WaitExecutionRequest, name=name, longest_wait=_values.to_duration(max(longest, 0.001), "timeout"))


def list_executions(
    namespace: str, filter: str | None, order_by: str | None, include_children: bool, page_size: int
) -> api.ListExecutionsRequest:
    fields = _present(filter=filter or None, order_by=order_by or None)
    return _build(api.ListExecutionsRequest, parent=f"namespaces/{namespace}", page_size=page_size, include_children=include_children, **fields)


def get_step(name: str, step: Any) -> api.GetStepRequest:
    return _build(api.GetStepRequest, name=step_name(name, step))


def list_steps(name: str, full: bool, page_size: int) -> api.ListStepsRequest:
    return _build(api.ListStepsRequest, parent=name, page_size=page_size, view="STEP_VIEW_FULL" if full else "STEP_VIEW_BASIC")


def list_artifacts(name: str, step: Any, kind: str | None, path_prefix: str | None, page_size: int) -> api.ListArtifactsRequest:
    request = _build(api.ListArtifactsRequest, parent=name if step is None else step_name(name, step), page_size=page_size)
    if kind is not None:
        request.kind = enum_number(artifact_pb2.Artifact.Kind, kind, "KIND_", "kind")
    if path_prefix:
        request.path_prefix = path_prefix
    return request


def read_blob(name: str, blob: Any, offset: int = 0) -> api.ReadBlobRequest:
    """Returns the request for a blob, which is a `Blob`, its digest, its digits, or its name."""
    digits = getattr(blob, "digest", blob)
    digits = digits.rpartition("/")[2].rpartition(":")[2] if isinstance(digits, str) else ""
    if not re.fullmatch(r"[0-9a-f]{64}", digits):
        raise UsageError(f"`blob` is {blob!r}: give a belay.Blob, or its digest.", field="blob")
    return _build(api.ReadBlobRequest, name=f"{name}/blobs/{digits}", offset=offset)


def get_artifact(name: str, artifact: Any) -> api.GetArtifactRequest:
    artifact = getattr(artifact, "name", artifact)
    if not isinstance(artifact, str) or not artifact:
        raise UsageError(f"`artifact` is {artifact!r}: give a belay.Artifact, its id, or its name.", field="artifact")
    return _build(api.GetArtifactRequest, name=artifact if "/" in artifact else f"{name}/artifacts/{artifact}")


def cancel(name: str, reason: str, kill: bool, etag: str | None, key: str | None) -> api.CancelExecutionRequest:
    return _build(api.CancelExecutionRequest, name=name, reason=reason, kill=kill, request_id=_key(key), **_present(etag=etag))


def pause(
    name: str, reason: str, discard_calls: bool, resume_time: datetime | None, etag: str | None, key: str | None
) -> api.PauseExecutionRequest:
    request = _build(api.PauseExecutionRequest, name=name, reason=reason, discard_calls=discard_calls, request_id=_key(key), **_present(etag=etag))
    if resume_time is not None:
        request.resume_time.CopyFrom(_values.to_timestamp(resume_time, "resume_time"))
    return request


def resume(name: str, etag: str | None, key: str | None) -> api.ResumeExecutionRequest:
    return _build(api.ResumeExecutionRequest, name=name, request_id=_key(key), **_present(etag=etag))


def signal(name: str, signal: str, payload: Any, key: str | None) -> api.SignalExecutionRequest:
    request = _build(api.SignalExecutionRequest, name=name, signal=signal, request_id=_key(key))
    if payload is not None:
        request.payload.CopyFrom(_values.to_payload(payload, "payload"))
    return request


def retry(
    name: str,
    from_step: Any,
    skip_failed: bool,
    start_paused: bool,
    plan: Any,
    reason: str,
    etag: str | None,
    key: str | None,
) -> api.RetryExecutionRequest:
    request = _build(
        api.RetryExecutionRequest,
        name=name,
        skip_failed=skip_failed,
        start_paused=start_paused,
        reason=reason,
        request_id=_key(key),
        **_present(from_step=step_id(from_step, "from_step"), etag=etag),
    )
    if plan is not None:
        request.document.CopyFrom(to_document(plan))
    return request


def step_id(step: Any, field: str) -> str | None:
    """Returns the id of a step from its id or anything with an `id`; None stays None."""
    if step is None or isinstance(step, str):
        return step
    if isinstance(getattr(step, "id", None), str):
        return str(step.id)
    raise UsageError(f"`{field}` is {step!r}: give the id of a step.", field=field)


def fork(
    name: str,
    id: str | None,
    from_step: Any,
    workspace: Any,
    start_paused: bool,
    after_turn: int | None,
    model: str | None,
    on_current_files: bool,
    reason: str,
    key: str | None,
) -> api.ForkExecutionRequest:
    optional = _present(
        execution_id=id,
        from_step=step_id(from_step, "from_step"),
        workspace=None if workspace is None else str(workspace),
        after_turn=after_turn,
        model=model,
    )
    return _build(
        api.ForkExecutionRequest,
        name=name, start_paused=start_paused, on_current_files=on_current_files, reason=reason, request_id=_key(key), **optional
    )


def update_plan(
    name: str, plan: Any, revision: int | None, reason: str, etag: str | None, key: str | None
) -> api.UpdatePlanRequest:
    optional = _present(revision=revision, etag=etag)
    return _build(api.UpdatePlanRequest, name=name, document=to_document(plan), reason=reason, request_id=_key(key), **optional)


def resolve(
    name: str, step: Any, resolution: str, result: Any, reason: str, etag: str | None, key: str | None
) -> api.ResolveStepRequest:
    number = enum_number(execution_pb2.StepResolution, resolution, "STEP_RESOLUTION_", "resolution")
    request = _build(
        api.ResolveStepRequest,
        name=step_name(name, step), resolution=execution_pb2.StepResolution.Name(number), reason=reason, request_id=_key(key), **_present(etag=etag)
    )
    if result is not None:
        request.result.CopyFrom(_values.to_payload(result, "result"))
    return request


def retry_step(name: str, step: Any, change: str, reason: str, etag: str | None, key: str | None) -> api.RetryStepRequest:
    number = enum_number(execution_pb2.RetryChange, change, "RETRY_CHANGE_", "change")
    return _build(
        api.RetryStepRequest,
        name=step_name(name, step), change=execution_pb2.RetryChange.Name(number), reason=reason, request_id=_key(key), **_present(etag=etag)
    )


def skip_step(name: str, step: Any, reason: str, etag: str | None, key: str | None) -> api.SkipStepRequest:
    return _build(api.SkipStepRequest, name=step_name(name, step), reason=reason, request_id=_key(key), **_present(etag=etag))


def set_step_output(name: str, step: Any, output: Any, reason: str, etag: str | None, key: str | None) -> api.SetStepOutputRequest:
    request = _build(api.SetStepOutputRequest, name=step_name(name, step), reason=reason, request_id=_key(key), **_present(etag=etag))
    request.output.CopyFrom(_values.to_payload(output, "output"))
    return request


def delete(name: str, etag: str | None, key: str | None) -> api.DeleteExecutionRequest:
    return _build(api.DeleteExecutionRequest, name=name, request_id=_key(key), **_present(etag=etag))


def _key(key: str | None) -> str:
    return new_key() if key is None else key


def list_approvals(
    namespace: str, execution: Any, states: Iterable[str], id_prefix: str | None, page_size: int
) -> gate_api.ListApprovalsRequest:
    if isinstance(states, str):
        states = (states,)
    name = None if execution is None else execution_name(execution, namespace)
    request = _build(
        gate_api.ListApprovalsRequest, parent=parent_of(name, namespace), page_size=page_size, **_present(id_prefix=id_prefix, execution=name)
    )
    request.states.extend(enum_number(approval_pb2.Approval.State, state, "STATE_", "states") for state in states)
    return request


def parent_of(execution: str | None, namespace: str) -> str:
    """Returns the namespace of an execution by its name, or else that of the client, as `namespaces/*`."""
    return f"namespaces/{namespace if execution is None else execution.split('/')[1]}"


def decide(name: str, digest: str, decision: str, reason: str, key: str | None) -> gate_api.DecideApprovalRequest:
    return _build(gate_api.DecideApprovalRequest, name=name, subject_digest=digest, decision=decision, reason=reason, request_id=_key(key))


def answer(name: str, digest: str, answer: Any, key: str | None) -> gate_api.AnswerFormRequest:
    return _build(
        gate_api.AnswerFormRequest,
        name=name, subject_digest=digest, answer=_values.to_payload(answer, "answer"), request_id=_key(key)
    )
