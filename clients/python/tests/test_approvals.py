"""Approvals and forms: a decision is about what was shown."""

import json

import pytest
from plans import DELETION, FORM

import belay


def pending(execution, eventually):
    return eventually(lambda: execution.approvals())[0]


def test_an_approval_is_looked_at_and_approved(belay_client, belay_server, eventually):
    execution = belay_client.start(DELETION)
    approval = pending(execution, eventually)
    assert (approval.kind, approval.state, approval.tool, approval.step_id) == ("EFFECT", "PENDING", "delete_file", "remove")
    assert approval.risk == "MEDIUM" and approval.totals["deleted"] == 1 and approval.request_reason == "Remove the old file"
    assert approval.execution == execution.name and approval.digest.startswith("sha256:")
    changes = list(approval.changes(page_size=1))
    assert [(change.path, change.kind) for change in changes] == [("old.txt", "DELETED")]
    assert "-one" in approval.diff(changes[0])
    shown = approval.show()
    assert shown.digest == approval.digest and "old.txt" in shown.headline and shown.form is None
    assert belay_client.approvals.get(approval.id).headline == shown.headline
    decided = shown.approve("as agreed")
    assert decided.decided_by == "person:owner" and decided.decide_reason == "as agreed" and not decided.is_pending
    assert execution.wait(30).succeeded
    assert not (belay_server.workspace_of(execution.info) / "old.txt").exists()
    with pytest.raises(belay.PreconditionError) as caught:
        approval.deny("too late")
    assert caught.value.reason == "ALREADY_DECIDED"


def test_a_denial_reaches_the_planner(belay_client, belay_server, eventually):
    execution = belay_client.start(DELETION)
    with pytest.raises(belay.UsageError, match="reason"):
        pending(execution, eventually).deny("")
    pending(execution, eventually).deny("we still need it")
    with pytest.raises(belay.ExecutionFailedError) as caught:
        execution.result(30)
    assert caught.value.failure.error_class == "APPROVAL_DENIED" and "we still need it" in caught.value.failure.message
    assert (belay_server.workspace_of(execution.get()) / "old.txt").read_text() == "one\ntwo\n"


def test_a_skipped_approval_skips_the_step(belay_client, eventually):
    execution = belay_client.start(DELETION)
    pending(execution, eventually).skip("not now")
    execution.wait(30)
    assert execution.step("remove").skip_reason == "APPROVAL_SKIPPED"


def test_another_digest_than_that_of_the_approval_decides_nothing(belay_client, eventually):
    execution = belay_client.start(DELETION)
    approval = pending(execution, eventually)
    approval.raw.subject_digest = "sha256:" + "0" * 64
    with pytest.raises(belay.PreconditionError) as caught:
        approval.approve()
    assert caught.value.reason == "DIGEST_MISMATCH"
    assert pending(execution, eventually).is_pending
    execution.cancel()


def test_a_decision_with_a_key_is_repeated_without_harm(belay_client, eventually):
    execution = belay_client.start(DELETION)
    approval = pending(execution, eventually)
    assert approval.approve("yes", key="decide-once").name == approval.approve("yes", key="decide-once").name
    with pytest.raises(belay.AlreadyExistsError):
        approval.approve("another note", key="decide-once")


def test_a_form_is_answered(belay_client, eventually):
    execution = belay_client.start(FORM)
    form = pending(execution, eventually)
    assert form.kind == "FORM" and form.operation == "Which version?" and form.form is None
    assert form.show().form.schema["properties"] == {"version": {"type": "integer"}} and form.show().form.description == "The next one."
    with pytest.raises(belay.InvalidArgumentError) as caught:
        form.answer({"version": "one"})
    assert caught.value.reason == "ANSWER_INVALID" and "version" in caught.value.field_violations[0].field
    with pytest.raises(belay.PreconditionError) as caught:
        form.approve()
    assert caught.value.reason == "FORM_NEEDS_ANSWER"
    assert form.answer({"version": 2**53 + 1}).state == "ANSWERED"
    assert execution.result(30) == {"version": 2**53 + 1}


def test_a_client_beside_the_command_line(belay_client, belay_server, eventually):
    with belay_client.approvals.watch() as updates:
        next(update for update in updates if update.kind == "listed")
        execution = belay_client.start(DELETION)
        asked = next(update.approval for update in updates if update.approval and update.approval.execution == execution.name)
        listed = json.loads(belay_server.command("approvals", "list", "-o", "json"))["approvals"]
        assert [one["subjectDigest"] for one in listed if one["name"] == asked.name] == [asked.digest]
        belay_server.command("approve", asked.id, "--yes")
        decided = next(update.approval for update in updates if update.approval and update.approval.name == asked.name and not update.approval.is_pending)
        assert decided.state in ("APPROVED", "CONSUMED") and decided.decided_by == "person:owner"
    assert execution.wait(30).succeeded
    with pytest.raises(belay.PreconditionError):
        asked.deny("not what the person said")


def test_approvals_are_watched_over_a_restart(own_server):
    with own_server.connect() as client:
        first = client.start(DELETION)
        with client.approvals.watch(execution=first) as updates:
            name = next(update.approval.name for update in updates if update.approval)
            own_server.restart()
            client.approvals.get(name).approve()
            states = []
            for update in updates:
                if update.approval:
                    states.append(update.approval.state)
                    if states[-1] == "CONSUMED":
                        break
            cursor = updates.cursor
        assert first.wait(30).succeeded
        with client.approvals.watch(execution=first, after=cursor) as updates:
            assert next(updates).kind == "listed"
        assert [one.state for one in client.approvals.list(execution=first, states=())] == ["CONSUMED"]
        assert list(client.approvals.list(execution=first)) == []
        with pytest.raises(belay.UsageError, match="PENDING"):
            list(client.approvals.list(states=["OPEN"]))


def test_two_approvals_of_one_plan_have_digests_of_their_own(belay_client, eventually):
    steps = [{"id": f"w{n}", "tool": "write_file", "arguments": {"path": f"{n}.txt", "content": str(n)}} for n in range(2)]
    steps += [{"id": f"d{n}", "tool": "delete_file", "depends_on": [f"w{n}"], "arguments": {"path": f"{n}.txt"}} for n in range(2)]
    execution = belay_client.start({"id": "two", "parallelism": 2, "steps": steps})
    both = eventually(lambda: len(execution.approvals()) == 2 and execution.approvals())
    assert len({approval.digest for approval in both}) == 2
    for approval in both:
        approval.approve()
    assert execution.wait(30).succeeded
