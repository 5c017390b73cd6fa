"""What threads, processes, tasks and event loops share."""

import asyncio
import inspect
import multiprocessing
import os
import subprocess
import sys
import threading

import pytest
from plans import DELETION, FORM, WAITING, chain, noop

import belay


def test_threads_share_a_client(belay_client):
    results, errors = [], []

    def work(number):
        try:
            for n in range(10):
                execution = belay_client.start(noop([number, n]))
                events = [event.sequence for event in execution.events()]
                assert events == list(range(1, len(events) + 1))
                results.append(tuple(execution.result(30)["value"]))
        except Exception as error:  # noqa: BLE001 - shown by the assertion below
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == [] and sorted(results) == [(number, n) for number in range(8) for n in range(10)]


def test_two_threads_watch_one_execution_with_streams_of_their_own(belay_client):
    execution = belay_client.start(chain(50))
    seen = [[], []]
    threads = [threading.Thread(target=lambda into: into.extend(event.id for event in execution.events()), args=(into,)) for into in seen]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert seen[0] == seen[1] and len(seen[0]) > 200


def test_a_stream_is_read_by_one_thread(belay_client):
    stream = belay_client.start(WAITING).events()
    next(stream)
    stream._is_reading = True
    with pytest.raises(belay.UsageError, match="open one for each"):
        next(stream)
    stream.close()


def test_a_client_is_used_after_a_fork(belay_client):
    belay_client.start(noop(0)).result(30)
    stream = belay_client.start(WAITING).events()
    next(stream)
    # gRPC prepares a fork only while no call is open.
    stream.close()
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            value = belay_client.start(noop("from the child")).result(30)["value"]
            os.write(write, value.encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        assert pipe.read() == "from the child"
    assert os.waitpid(pid, 0)[1] == 0
    assert belay_client.start(noop(1)).result(30) == {"value": 1}


def run_in_child(url, queue):
    with belay.Client.connect(url) as client:
        queue.put(client.start(noop("spawned")).result(30)["value"])


def test_a_client_is_made_in_a_spawned_process(belay_server):
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=run_in_child, args=(belay_server.url, queue))
    process.start()
    assert queue.get(timeout=60) == "spawned"
    process.join(30)


def test_a_fork_without_grpcs_support_is_refused_instead_of_hanging(belay_server):
    code = (
        "import belay, os, sys\n"
        "client = belay.Client.connect(sys.argv[1])\n"
        "list(client.executions())\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    try:\n        list(client.executions())\n    except belay.UsageError as error:\n        print(error.message, flush=True)\n    os._exit(0)\n"
        "os.waitpid(pid, 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, belay_server.url], env=os.environ | {"GRPC_ENABLE_FORK_SUPPORT": "0"}, capture_output=True, text=True, timeout=60
    )
    assert "GRPC_ENABLE_FORK_SUPPORT" in done.stdout, done.stderr


def test_fifty_waits_in_one_loop(belay_server):
    async def main():
        async with await belay_server.connect_async() as client:
            executions = await asyncio.gather(*(client.start(WAITING) for _ in range(50)))
            waits = [asyncio.create_task(execution.result(60)) for execution in executions]
            streams = [asyncio.create_task(collect(execution)) for execution in executions[:10]]
            await asyncio.gather(*(execution.signal("go", n) for n, execution in enumerate(executions)))
            assert await asyncio.gather(*waits) == [{"got": n} for n in range(50)]
            for events in await asyncio.gather(*streams):
                assert events == list(range(1, len(events) + 1))

    async def collect(execution):
        return [event.sequence async for event in execution.events()]

    asyncio.run(main())


def test_asyncio_does_what_the_blocking_client_does(belay_server):
    async def main():
        async with await belay_server.connect_async(namespace="asyncio") as client:
            execution = await client.start(DELETION)
            async with client.approvals.watch(execution=execution) as updates:
                async for update in updates:
                    if update.approval and update.approval.is_pending:
                        assert [change.path async for change in update.approval.changes()] == ["old.txt"]
                        await (await update.approval.show()).approve("fine")
                        break
            assert (await execution.wait(30)).succeeded
            form = await client.start(FORM)
            while not (asked := await form.approvals()):
                pass
            with pytest.raises(belay.InvalidArgumentError):
                await asked[0].answer({})
            await asked[0].answer({"version": 3})
            assert await form.result(30) == {"version": 3}
            large = await client.start(noop("${inputs.x}") | {"inputs": {"x": {}}}, inputs={"x": "x" * 100_000})
            assert await large.result(30) == {"value": "x" * 100_000}
            assert len([step async for step in large.steps(full=True)]) == 1
            assert [artifact.kind async for artifact in execution.artifacts(kind="FILE")] == ["FILE", "FILE"]
            assert len([info async for info in client.executions(page_size=1)]) == 3
            async with client.watch_executions() as watched:
                kinds = [(await anext(watched)).kind for _ in range(4)]
            assert kinds == ["changed"] * 3 + ["listed"]
            with pytest.raises(belay.NotFoundError):
                await client.execution("none").get()
            async with await belay_server.connect_async(namespace="-") as everywhere:
                assert execution.name in [info.name async for info in everywhere.executions()]
                assert [one.state async for one in everywhere.approvals.list(execution=execution, states=())] == ["CONSUMED"]
                with pytest.raises(belay.InvalidArgumentError):
                    await everywhere.start(noop(1))
            copy = await execution.fork(from_step="remove")
            await copy.cancel()

    asyncio.run(main())


def test_asyncio_over_a_kill_and_a_restart(own_server):
    async def main():
        async with await own_server.connect_async() as client:
            execution = await client.start(chain(100, sleep_ms=5))
            stream = execution.events()
            events = [await anext(stream) for _ in range(30)]
            await asyncio.to_thread(own_server.restart)
            events += [event async for event in stream]
            assert [event.sequence for event in events] == list(range(1, len(events) + 1))
            assert events[-1].kind == "execution_finished"

    asyncio.run(main())


def test_a_task_that_is_cancelled_leaves_the_client_usable(belay_server):
    async def main():
        async with await belay_server.connect_async() as client:
            execution = await client.start(WAITING)
            wait = asyncio.create_task(execution.wait())
            stream = execution.events()
            await anext(stream)
            read = asyncio.create_task(drain(stream))
            await asyncio.sleep(0)
            for task in (wait, read):
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            await execution.signal("go")
            assert (await execution.wait(30)).succeeded

    async def drain(stream):
        async for _ in stream:
            pass

    asyncio.run(main())


def test_an_asyncio_client_belongs_to_one_loop(belay_server):
    async def connect():
        client = await belay_server.connect_async()
        await (await client.start(noop(1))).result(30)
        return client

    client = asyncio.run(connect())

    async def again():
        with pytest.raises(belay.UsageError, match="event loop"):
            await client.start(noop(1))
        client._pid = client._transport._pid = -1
        with pytest.raises(belay.UsageError, match="fork"):
            await client.start(noop(1))

    asyncio.run(again())


PAIRS = [
    (belay.Client, belay.AsyncClient),
    (belay.Execution, belay.AsyncExecution),
    (belay.Approval, belay.AsyncApproval),
    (belay.Approvals, belay.AsyncApprovals),
    (belay.EventStream, belay.AsyncEventStream),
]


@pytest.mark.parametrize("blocking, asynchronous", PAIRS)
def test_both_clients_have_the_same_shape(blocking, asynchronous):
    def shape(kind):
        names = [name for name in dir(kind) if not name.startswith("_")]
        return {
            name.replace("aclose", "close"): [(one.name, one.default, one.kind) for one in inspect.signature(getattr(kind, name)).parameters.values()]
            if callable(getattr(kind, name))
            else "property"
            for name in names
        }

    assert shape(blocking) == shape(asynchronous)


@pytest.mark.parametrize("name", belay.__all__)
def test_everything_public_is_documented(name):
    found = getattr(belay, name)
    if isinstance(found, int):
        return
    assert found.__doc__, name
    for member, value in vars(found).items() if inspect.isclass(found) else ():
        if not member.startswith("_") and (inspect.isfunction(value) or isinstance(value, (property, classmethod, staticmethod))):
            assert inspect.getdoc(getattr(found, member)), f"{name}.{member}"
