"""Errors: typed, with what a program and a person need."""

import pickle
import re
import time

import grpc
import pytest
from conftest import REPOSITORY
from plans import noop
from scripted_server import ScriptedServer

import belay
from belay import _calls, errors

CLASSES = {code.name: errors._CLASSES[code.name] for code in grpc.StatusCode if code.name != "OK"}


@pytest.mark.parametrize("code", sorted(CLASSES))
def test_each_code_has_its_class(code):
    end = {
        "code": code, "message": "it is so", "reason": "LIMIT_REACHED", "metadata": {"limit": "3"}, "retry_after": 60.5,
        "violations": [{"field": "steps[0].tool", "description": "is required"}, {"field": "", "description": "is odd"}],
    }
    with ScriptedServer({"GetExecution": [{"end": end}]}) as server, belay.Client.connect(server.url, retry_for=0.2) as client:
        with pytest.raises(CLASSES[code]) as caught:
            client.execution("e").get()
    error = caught.value
    assert isinstance(error, belay.BelayError) and error.code == code and error.reason == "LIMIT_REACHED"
    assert error.message == "it is so" and error.retry_after == 60.5 and error.metadata == {"limit": "3"}
    assert error.page == "docs/errors.md#limit_reached" and error.page in str(error) and "steps[0].tool: is required\n  is odd" in str(error)
    assert error.field_violations[0] == belay.FieldViolation("steps[0].tool", "is required")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error) and str(copy) == str(error) and copy.__dict__ == error.__dict__


def test_a_reason_of_another_domain_is_not_belays():
    end = {"code": "FAILED_PRECONDITION", "message": "no", "reason": "QUOTA", "domain": "example.com"}
    with ScriptedServer({"GetExecution": [{"end": end}]}) as server, belay.Client.connect(server.url) as client:
        with pytest.raises(belay.PreconditionError) as caught:
            client.execution("e").get()
    assert caught.value.reason == "FAILED_PRECONDITION" and caught.value.metadata == {}


def test_details_that_are_damaged_do_not_hide_the_error():
    class Broken(grpc.RpcError):
        def code(self):
            return grpc.StatusCode.NOT_FOUND

        def details(self):
            return "gone"

        def trailing_metadata(self):
            return (("grpc-status-details-bin", b"\xff\xff\xff"),)

    error = errors.decode_rpc_error(Broken(), "unix:/x")
    assert isinstance(error, belay.NotFoundError) and error.message == "gone"


def test_reads_are_repeated_and_changes_only_with_a_key():
    name = {"name": "namespaces/default/executions/e"}
    lost = {"end": {"code": "UNAVAILABLE", "message": "lost"}}
    full = {"end": {"code": "RESOURCE_EXHAUSTED", "reason": "LIMIT_REACHED", "retry_after": 0.05}}
    script = {
        "GetExecution": [lost, full, {"send": [name]}],
        "StartExecution": [lost, lost, {"send": [name]}],
        "ValidatePlan": [lost, {"send": [{}]}],
        "CancelExecution": [{"end": {"code": "RESOURCE_EXHAUSTED", "reason": "TOO_MANY"}}],
    }
    with ScriptedServer(script) as server, belay.Client.connect(server.url) as client:
        assert client.execution("e").get().id == "e"
        execution = client.start(noop(1))
        started = [request for method, request, _ in server.requests if method == "StartExecution"]
        assert len(started) == 3 and len({request.request_id for request in started}) == 1 and started[0].request_id
        with pytest.raises(belay.UnavailableError):
            client.validate(noop(1))
        with pytest.raises(belay.ResourceExhaustedError):
            execution.cancel()


def test_a_call_has_a_deadline():
    script = {"GetExecution": [{"end": "silence"}], "CancelExecution": [{"end": "silence"}]}
    with ScriptedServer(script) as server, belay.Client.connect(server.url, timeout=0.3) as client:
        began = time.monotonic()
        for call in (client.execution("e").get, client.execution("e").cancel):
            with pytest.raises(belay.DeadlineExceededError) as caught:
                call()
            assert isinstance(caught.value, TimeoutError) and caught.value.reason == "DEADLINE_EXCEEDED"
        assert time.monotonic() - began < 5


def test_what_the_server_refuses_names_the_field(belay_client):
    with pytest.raises(belay.InvalidArgumentError) as caught:
        belay_client.start({"id": "x", "steps": [{"id": "a", "tool": "noop", "depends_on": ["nope"]}, {"id": "b"}]})
    assert caught.value.reason == "PLAN_REFUSED"
    assert {violation.field for violation in caught.value.field_violations} >= {"steps[0].depends_on[0]", "steps[1].tool"}
    with pytest.raises(belay.InvalidArgumentError) as caught:
        belay_client.start(noop(1), id="Not An Id")
    assert caught.value.field_violations[0].field == "execution_id"
    with pytest.raises(belay.InvalidArgumentError):
        belay_client.start(noop(1), key="")
    with pytest.raises(belay.InvalidArgumentError) as caught:
        belay_client.start(noop(2**64))
    assert "64 bits" in str(caught.value) or caught.value.field_violations


@pytest.mark.parametrize(
    "call, field",
    [
        (lambda client: client.start({"id": "x", "steps": [object()]}), "plan"),
        (lambda client: client.start(noop(float("nan"))), "plan"),
        (lambda client: client.start(noop("\ud800")), "plan"),
        (lambda client: client.start(noop("x" * (5 << 20))), "plan"),
        (lambda client: client.start("id: x\nsteps: []"), "plan"),
        (lambda client: client.start(7), "plan"),
        (lambda client: client.start("no-such-file.yaml"), "plan"),
        (lambda client: client.start(noop(1), inputs=[1]), "inputs"),
        (lambda client: client.start(noop(1), labels={"a": 1}), "labels"),
        (lambda client: client.start(noop(1), approval_mode="MAYBE"), "approval_mode"),
        (lambda client: client.start(noop(1), start_time=__import__("datetime").datetime.now()), "start_time"),
        (lambda client: client.start(noop(1), step_timeout=-1), "step_timeout"),
        (lambda client: client.start(noop(1), id="\ud800"), "id"),
        (lambda client: client.start(noop(1), key=7), "key"),
        (lambda client: client.start(noop(1), labels={"a": "\udfff"}), "labels"),
        (lambda client: client.execution("e").update_plan(noop(1), revision=2**40), "revision"),
        (lambda client: client.execution("e").cancel("\ud800"), "reason"),
        (lambda client: list(client.executions(page_size=2**40)), "page_size"),
        (lambda client: list(client.execution("e").stream_blob("0" * 64, offset="1")), "offset"),
        (lambda client: client.execution("a/b"), "execution"),
        (lambda client: client.execution(""), "execution"),
        (lambda client: client.execution("e").step("a/b"), "step"),
        (lambda client: client.execution("e").read_blob("short"), "blob"),
        (lambda client: client.execution("e").signal("go", {1, 2}), "payload"),
        (lambda client: list(client.execution("e").artifacts(kind="PICTURE")), "kind"),
    ],
)
def test_what_cannot_be_sent_is_refused_here(call, field):
    with belay.Client.connect("unix:/nowhere") as client:
        with pytest.raises(belay.UsageError) as caught:
            call(client)
    assert caught.value.field_violations[0].field == field and f"`{field}`" in str(caught.value) or "file" in str(caught.value)
    assert isinstance(caught.value, ValueError)


def test_a_request_that_is_too_large_is_not_sent():
    with belay.Client.connect("unix:/nowhere") as client, pytest.raises(belay.UsageError) as caught:
        client.start(noop(1), inputs={"x": "x" * 100_000_000})
    assert caught.value.reason == "MESSAGE_TOO_LARGE" and "files" in str(caught.value)


def test_every_reason_that_no_repetition_helps_is_known():
    text = (REPOSITORY / "docs/errors.md").read_text("utf-8")
    sections = re.findall(r"^### (\w+)\n(.*?)(?=^### |\Z)", text, re.M | re.S)
    permanent = {name for name, body in sections if re.search(r"gRPC [\w ]*UNAVAILABLE[\w ]* · not retryable", body)}
    assert permanent == _calls.PERMANENT


def test_the_clients_own_reasons_are_explained():
    text = (REPOSITORY / "docs/errors.md").read_text("utf-8")
    for reason in ("INVALID_USAGE", "SERVER_UNREACHABLE", "WAIT_TIMEOUT", "EXECUTION_FAILED", "EXECUTION_CANCELLED", "EXECUTION_TIMED_OUT", "PLAN_UNREADABLE"):
        assert f"### {reason}\n" in text
