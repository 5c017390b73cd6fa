"""Executions: started, followed, read and changed."""

import json
import time
from datetime import datetime, timedelta, timezone

import pytest
from plans import WAITING, chain, noop

import belay


def test_an_execution_is_started_followed_and_read(belay_client):
    execution = belay_client.start(chain(3), labels={"team": "a"})
    events = list(execution.events())
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert events[0].kind == "execution_created" and events[-1].kind == "execution_finished"
    assert {event.execution for event in events} == {execution.name} and len({event.id for event in events}) == len(events)
    info = execution.wait(timeout=30)
    assert info.succeeded and info.ended and info.labels == {"team": "a"} and info.totals["completed"] == 3
    assert info.create_time <= info.end_time and abs(datetime.now(timezone.utc) - info.end_time) < timedelta(minutes=1)
    assert [(step.id, step.state, step.output) for step in execution.steps(full=True)] == [(f"s{n}", "COMPLETED", n) for n in range(3)]
    assert [step.output for step in execution.steps(page_size=1)] == [None] * 3
    artifacts = list(execution.artifacts(page_size=2))
    assert [(one.kind, one.step_id) for one in artifacts] == [("OUTPUT", f"s{n}") for n in range(3)]
    assert execution.read_artifact(artifacts[1]) == b"1"
    assert belay_client.execution(execution.id) == execution and belay_client.execution(info).info is info


def test_the_same_key_starts_one_execution(belay_client):
    first = belay_client.start(noop(1), key="start-once")
    assert belay_client.start(noop(1), key="start-once").name == first.name
    with pytest.raises(belay.AlreadyExistsError) as caught:
        belay_client.start(noop(2), key="start-once")
    assert caught.value.reason == "REQUEST_ID_REUSED"
    assert belay_client.start(noop(1)).name != belay_client.start(noop(1)).name


@pytest.mark.parametrize(
    "value",
    [
        9007199254740993,
        -(2**63),
        2**64 - 1,
        1.5e300,
        "日本 🌱 \u2028 \u0000 e\u0301 \"quoted\"",
        {"ключ\n": [None, True, {"": []}]},
        "",
        [],
    ],
)
def test_values_come_back_as_they_were(belay_client, value):
    execution = belay_client.start(noop(value))
    assert execution.result(timeout=30) == {"value": value}
    assert execution.output("say") == value
    assert type(execution.output("say")) is type(value)


def test_names_with_line_breaks_and_any_script(belay_client):
    plan = {"id": "names", "steps": [{"id": "a", "title": "Zeile\nzwei 日本 🌱\u2028", "tool": "noop", "arguments": {"output": {"\n": "\u0007"}}}]}
    execution = belay_client.start(plan, labels={"who 日": "Ünï\u202ecode 🌱"})
    assert execution.wait(30).labels == {"who 日": "Ünï\u202ecode 🌱"}
    step = execution.step("a")
    assert step.title == "Zeile\nzwei 日本 🌱\u2028" and step.output == {"\n": "\u0007"}


def test_a_failure_is_data_and_result_raises_it(belay_client):
    plan = {"id": "fails", "steps": [{"id": "a", "tool": "noop", "arguments": {"fail": "out of luck"}}]}
    execution = belay_client.start(plan)
    with pytest.raises(belay.ExecutionFailedError) as caught:
        execution.result(timeout=30)
    assert caught.value.info.state == "FAILED" and "out of luck" in str(caught.value)
    assert caught.value.failure.error_class == "TRANSIENT" and caught.value.failure.reason == caught.value.reason == "TOOL_FAILED"
    assert execution.step("a").failure.message == caught.value.failure.message
    failed = [event for event in execution.events() if event.kind == "step_failed"]
    assert failed[0].failure.reason == "TOOL_FAILED"


def test_an_execution_continues_with_an_edited_plan(belay_client):
    plan = {"id": "edited", "outputs": {"b": "${b.result}"}, "steps": [
        {"id": "a", "tool": "noop", "arguments": {"output": 1}},
        {"id": "b", "tool": "noop", "depends_on": ["a"], "arguments": {"fail": "no"}},
    ]}
    execution = belay_client.start(plan)
    assert execution.wait(30).state == "PARTIAL"
    plan["steps"][1]["arguments"] = {"output": "${a.result}"}
    execution.retry(plan=plan, reason="b had a mistake")
    assert execution.result(30) == {"b": 1}
    assert execution.step("a").attempt == 1


def test_changes(belay_client):
    execution = belay_client.start(WAITING, start_paused=True)
    assert execution.info.state == "PAUSED"
    etag = execution.info.etag
    assert execution.resume(etag=etag).state != "PAUSED"
    with pytest.raises(belay.AbortedError) as caught:
        execution.pause(etag=etag)
    assert caught.value.reason == "ETAG_MISMATCH"
    assert execution.pause("lunch", resume_time=datetime.now(timezone.utc) + timedelta(hours=1)).state == "PAUSED"
    execution.resume()
    plan = WAITING | {"steps": [*WAITING["steps"], {"id": "after", "tool": "noop", "depends_on": ["wait"], "arguments": {"output": "${wait.result}"}}]}
    assert execution.update_plan(plan, revision=0, reason="one more").plan_revision == 1
    with pytest.raises(belay.PreconditionError) as caught:
        execution.update_plan(plan, revision=0)
    assert caught.value.reason == "PLAN_REVISION_MISMATCH"
    execution.signal("go", {"n": 2**53 + 1})
    assert execution.result(30) == {"got": {"n": 2**53 + 1}}
    assert execution.output("after") == {"n": 2**53 + 1}
    copy = execution.fork(from_step="after", reason="again")
    assert copy != execution and copy.result(30) == {"got": {"n": 2**53 + 1}}
    assert copy.get().raw.forked_from == execution.name


def test_steps_are_skipped_and_given_outputs(belay_client):
    plan = {"id": "steps", "outputs": {"c": "${c.result}"}, "steps": [
        {"id": "a", "wait": {"signal": "never"}},
        {"id": "b", "tool": "noop", "depends_on": ["a"], "arguments": {"output": 1}},
        {"id": "c", "tool": "noop", "depends_on": ["b"], "arguments": {"output": "${b.result}"}},
    ]}
    execution = belay_client.start(plan, start_paused=True)
    execution.skip_step("a", reason="not needed")
    execution.set_step_output("b", {"given": True}, reason="known")
    execution.resume()
    assert execution.result(30) == {"c": {"given": True}}
    assert execution.step("a").skip_reason == "REQUESTED"
    with pytest.raises(belay.PreconditionError):
        execution.skip_step("c")
    with pytest.raises(belay.PreconditionError):
        execution.resolve("c", "COMPLETED", result=1, reason="nobody knows")
    with pytest.raises(belay.UsageError, match="COMPLETED, FAILED, AGAIN"):
        execution.resolve("c", "MAYBE")


def test_a_step_that_waits_for_its_next_attempt_is_tried_now(belay_client, eventually):
    step = {"id": "a", "tool": "noop", "arguments": {"fail": "once", "fail_attempts": 1, "output": 7}, "retry": {"max_attempts": 2, "backoff": ["1h"]}}
    execution = belay_client.start({"id": "later", "outputs": {"a": "${a.result}"}, "steps": [step]})
    with execution.events() as events:
        next(event for event in events if event.kind == "step_retry_scheduled")
    execution.retry_step("a", reason="now")
    assert execution.result(30) == {"a": 7}


def test_cancel_and_delete(belay_client):
    execution = belay_client.start(WAITING)
    execution.cancel("enough")
    assert execution.wait(30).state == "CANCELLED"
    with pytest.raises(belay.ExecutionFailedError) as caught:
        execution.result(1)
    assert caught.value.reason == "EXECUTION_CANCELLED"
    execution.delete()
    with pytest.raises(belay.NotFoundError):
        execution.get()


def test_a_wait_that_is_too_short_raises_and_the_execution_continues(belay_client):
    execution = belay_client.start(WAITING)
    began = time.monotonic()
    with pytest.raises(belay.WaitTimeoutError) as caught:
        execution.wait(timeout=0.3)
    assert 0.2 < time.monotonic() - began < 10 and isinstance(caught.value, TimeoutError)
    assert not caught.value.info.ended
    execution.signal("go")
    assert execution.wait(30).succeeded


def test_lists_are_paged_lazily_and_filtered(belay_client):
    names = {belay_client.start(noop(n), labels={"page": "lazy"}).name for n in range(5)}
    listed = belay_client.executions('labels.page = "lazy"', page_size=2)
    assert {info.name for info in listed} == names
    assert next(belay_client.executions('labels.page = "lazy"', page_size=1)).name in names
    assert list(belay_client.executions('labels.page = "none"')) == []
    with pytest.raises(belay.InvalidArgumentError) as caught:
        list(belay_client.executions("stat = FAILED"))
    assert caught.value.field_violations[0].field == "filter"


def test_validation_starts_nothing(belay_client):
    assert belay_client.validate(noop(1)) == []
    problems = belay_client.validate({"id": "x", "steps": [{"id": "a", "tol": "noop"}]})
    assert {problem.field for problem in problems} == {"steps[0].tool", "steps[0].tol"}
    assert all(problem.line == 1 for problem in problems)


def test_every_unary_method_is_reachable_raw(belay_client):
    execution = belay_client.start(noop(1))
    execution.wait(30)
    request = belay.raw.timeline_pb2.GetTimelineRequest(name=execution.name)
    assert belay_client.call("ExecutorService/GetTimeline", request).rows
    with pytest.raises(belay.UsageError, match="GetTimeline"):
        belay_client.call("ExecutorService/GetTimelines", request)
    with pytest.raises(belay.UsageError, match="GetStepRequest"):
        belay_client.call("ExecutorService/GetStep", request)


def test_large_outputs(belay_client):
    piece = "x" * 200_000
    steps = [{"id": "a", "tool": "noop", "arguments": {"output": "${inputs.piece}" * 20}}]
    steps += [{"id": f"b{n}", "tool": "noop", "arguments": {"output": "${a.result}" + str(n % 10)}} for n in range(1)]
    execution = belay_client.start({"id": "large", "parallelism": 2, "inputs": {"piece": {}}, "steps": steps}, inputs={"piece": piece})
    info = execution.wait(timeout=120)
    assert info.succeeded, info.failure
    total = 0
    for step in execution.steps(full=True):
        assert isinstance(step.output, belay.Blob) and step.output.size_bytes >= 4_000_000
        data = execution.read_blob(step.output)
        assert len(data) == step.output.size_bytes
        total += len(data)
        half = step.output.size_bytes // 2
        if step.id == "b0":
            assert b"".join(execution.stream_blob(step.output.digest, offset=half)) == data[half:]
            assert execution.output("b0") == json.loads(data) == piece * 20 + "0"
    assert total > 8_000_000
    with pytest.raises(belay.OutOfRangeError):
        list(execution.stream_blob(step.output, offset=step.output.size_bytes + 1))
    with pytest.raises(belay.NotFoundError):
        execution.read_blob("0" * 64)
