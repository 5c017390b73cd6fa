"""Watches: nothing is skipped and nothing repeated, whatever happens to the connection."""

import signal
import threading

import pytest
from plans import WAITING, chain, noop
from scripted_server import ScriptedServer

import belay

NAME = "namespaces/default/executions/e"


def snapshot(state="STATE_RUNNING", last=0, cursor="c0", uid="u1"):
    return {"cursor": cursor, "uid": uid, "execution": NAME, "snapshot": {"name": NAME, "uid": uid, "state": state, "lastSequence": str(last)}}


def event(sequence, kind="stepStarted", cursor=None, **fields):
    return {"cursor": cursor or f"c{sequence}", "event": {"sequence": str(sequence), kind: {}, **fields}}


FINISHED = event(4, "executionFinished")
UNAVAILABLE = {"code": "UNAVAILABLE", "message": "gone"}


def read(script, **options):
    """Returns the sequences and kinds that a client reads of a scripted watch, and the cursors that it sent."""
    with ScriptedServer({"WatchExecution": script}) as server, belay.Client.connect(server.url, heartbeat=0.1, **options) as client:
        events = list(client.execution("e").events())
        return events, [request.cursor for _, request, _ in server.requests]


def test_a_reader_continues_over_a_kill_and_a_restart(own_server):
    with own_server.connect() as client:
        execution = client.start(WAITING | {"id": "restarted"})
        steps = chain(200, sleep_ms=5)["steps"]
        long = client.start({"id": "long", "steps": steps})
        stream = long.events()
        events = [next(stream) for _ in range(50)]
        own_server.kill()
        thread = threading.Timer(0.2, own_server.start)
        thread.start()
        events += list(stream)
        thread.join()
        assert [one.sequence for one in events] == list(range(1, len(events) + 1))
        assert events[-1].kind == "execution_finished" and "execution_recovered" in {one.kind for one in events}
        assert sum(one.kind == "step_completed" for one in events) == 200
        # What was seen is what is stored.
        assert [one.id for one in long.events()] == [one.id for one in events]
        assert [one.id for one in long.events(after=events[99])] == [one.id for one in events[100:]]
        execution.signal("go", 1)
        assert execution.result(30) == {"got": 1}


def test_a_wait_lasts_over_a_restart(own_server):
    with own_server.connect() as client:
        execution = client.start(WAITING)
        ended = []
        thread = threading.Thread(target=lambda: ended.append(execution.wait(timeout=60)))
        thread.start()
        own_server.restart()
        execution.signal("go")
        thread.join(60)
        assert ended[0].succeeded


def test_a_server_that_is_silent_is_left(own_server):
    with own_server.connect(heartbeat=0.1, reconnect_for=0.5, timeout=2) as client:
        execution = client.start(WAITING)
        stream = execution.events()
        assert next(stream).kind == "execution_created"
        own_server.send_signal(signal.SIGSTOP)
        try:
            with pytest.raises(belay.UnavailableError) as caught:
                list(stream)
            assert caught.value.reason == "SERVER_UNREACHABLE"
        finally:
            own_server.send_signal(signal.SIGCONT)
        execution.signal("go")
        rest = list(execution.events(after=stream.cursor))
        assert rest[0].sequence > 1 and rest[-1].kind == "execution_finished"


def test_a_stream_that_breaks_anywhere_is_continued_at_its_cursor():
    events, cursors = read([
        {"end": UNAVAILABLE},
        {"send": [snapshot()], "end": UNAVAILABLE},
        {"send": [snapshot(), event(1), {"cursor": "c1", "heartbeat": {}}], "end": {"code": "INTERNAL", "message": "RST_STREAM"}},
        {"send": [snapshot(last=1, cursor="c1"), event(2)], "end": "ok"},
        {"send": [snapshot(last=2, cursor="c2"), event(3), FINISHED], "end": "ok"},
    ])
    assert [one.sequence for one in events] == [1, 2, 3, 4]
    assert cursors == ["", "", "c0", "c1", "c2"]


def test_what_comes_twice_is_dropped_and_what_is_missing_is_fetched():
    events, cursors = read([
        {"send": [snapshot(), event(1), event(1), event(2), event(1, cursor="c2"), FINISHED]},
        {"send": [snapshot(cursor="c2"), event(2), event(3), FINISHED]},
    ])
    assert [one.sequence for one in events] == [1, 2, 3, 4]
    assert cursors == ["", "c2"]


def test_a_server_that_leaves_events_out_is_refused():
    with pytest.raises(belay.ContractError, match="4 follows 1"):
        read([{"send": [snapshot(), event(1), FINISHED]}])


def test_a_reset_is_shown_and_everything_follows():
    events, cursors = read([
        {"send": [snapshot(), event(1), event(2)], "end": UNAVAILABLE},
        {"send": [
            {"cursor": "d0", "reset": {"reason": "REASON_LOST"}}, snapshot(cursor="d0", uid="u2"), event(1, cursor="d1"), event(2, "executionFinished", cursor="d2"),
        ]},
    ])
    assert [(one.kind, one.sequence, one.uid) for one in events] == [
        ("step_started", 1, "u1"), ("step_started", 2, "u1"), ("reset", 0, ""), ("step_started", 1, "u2"), ("execution_finished", 2, "u2"),
    ]
    assert events[2].reset_reason == "LOST" and cursors == ["", "c2"]


def test_live_output_comes_only_when_it_is_wanted():
    output = {"cursor": "c1", "event": {"ephemeral": True, "stepId": "a", "toolCallOutput": {"text": "hello"}}}
    script = {"WatchExecution": [{"send": [snapshot(), event(1), output, event(2), event(3), FINISHED]}]}
    with ScriptedServer(script) as server, belay.Client.connect(server.url) as client:
        assert [one.sequence for one in client.execution("e").events()] == [1, 2, 3, 4]
        shown = list(client.execution("e").events(output=True))
        assert [(one.sequence, one.text) for one in shown] == [(1, ""), (0, "hello"), (2, ""), (3, ""), (4, "")]


def unknown(sequence, safe_to_skip):
    """The bytes of a message with an event of a kind that is in no contract."""
    import base64

    inner = bytes([0x08, sequence]) + (bytes([0x40, 1]) if safe_to_skip else b"") + bytes([0xBA, 0x3E, 0])
    cursor = f"c{sequence}".encode()
    return {"base64": base64.b64encode(bytes([0x0A, len(cursor)]) + cursor + bytes([0x2A, len(inner)]) + inner).decode()}


def test_unknown_kinds_of_events():
    events, _ = read([{"send": [snapshot(), event(1), unknown(2, True), event(3), FINISHED]}])
    assert [(one.sequence, one.kind) for one in events][1] == (2, "unknown") and len(events) == 4
    with pytest.raises(belay.ContractError) as caught:
        read([{"send": [snapshot(), event(1), unknown(2, False), event(3), FINISHED]}])
    assert caught.value.reason == "UNKNOWN_EVENT_KIND" and "upgrade" in str(caught.value)


def test_a_refusal_and_a_permanent_fault_end_the_watch():
    for end, kind in (
        ({"code": "NOT_FOUND", "reason": "EXECUTION_DELETED"}, belay.NotFoundError),
        ({"code": "UNAVAILABLE", "reason": "STORE_GONE"}, belay.UnavailableError),
        ({"code": "INTERNAL", "reason": "EXECUTION_SET_ASIDE"}, belay.InternalError),
    ):
        with pytest.raises(kind) as caught:
            read([{"send": [snapshot(), event(1)], "end": end}])
        assert caught.value.reason == end["reason"]
    with pytest.raises(belay.UnavailableError):
        read([{"end": UNAVAILABLE}], reconnect_for=0.3)


def test_a_stream_is_closed_from_another_thread(belay_client):
    stream = belay_client.start(WAITING).events()
    seen = []
    first = threading.Event()

    def run():
        for one in stream:
            seen.append(one)
            first.set()

    thread = threading.Thread(target=run)
    thread.start()
    assert first.wait(20)
    stream.close()
    thread.join(20)
    assert not thread.is_alive() and seen
    with pytest.raises(StopIteration):
        next(stream)


def test_a_cursor_of_another_watch_is_refused(belay_client):
    one, two = belay_client.start(noop(1)), belay_client.start(noop(2))
    cursor = list(one.events())[-1].cursor
    with pytest.raises(belay.InvalidArgumentError) as caught:
        list(two.events(after=cursor))
    assert caught.value.field_violations[0].field == "cursor"
    with pytest.raises(belay.UsageError, match="after"):
        one.events(after=3)


def test_executions_are_watched(own_server):
    with own_server.connect() as client:
        with client.watch_executions('labels.w = "yes"') as updates:
            assert next(updates).kind == "listed"
            execution = client.start(WAITING, labels={"w": "yes"})
            assert next(updates).execution.name == execution.name
            cursor = updates.cursor
            own_server.restart()
            execution.signal("go")
            assert next(one.execution for one in updates if one.execution and one.execution.ended).name == execution.name
            execution.delete()
            removed = next(one for one in updates if one.kind == "removed")
            assert removed.removed == belay.Removed(execution.name, True)
        with client.watch_executions('labels.w = "yes"', after=cursor) as again:
            assert {next(again).kind for _ in range(2)} <= {"changed", "removed", "listed"}


def test_a_first_list_that_is_interrupted_begins_anew():
    shown = {"execution": {"name": NAME, "state": "STATE_RUNNING"}}
    script = {"WatchExecutions": [
        {"send": [shown], "end": UNAVAILABLE},
        {"send": [shown, {"cursor": "c1", "listed": {}}], "end": UNAVAILABLE},
        {"send": [{"cursor": "c2", "removed": {"name": NAME, "deleted": True}}, {"cursor": "c3", "listed": {}}], "end": "silence"},
    ]}
    with ScriptedServer(script) as server, belay.Client.connect(server.url) as client, client.watch_executions() as updates:
        kinds = [next(updates).kind for _ in range(6)]
        assert kinds == ["changed", "reset", "changed", "listed", "removed", "listed"]
        assert [request.cursor for _, request, _ in server.requests] == ["", "", "c1"]
