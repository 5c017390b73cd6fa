"""Connections that are cut at any byte, and servers that are killed again and again."""

import random
import socket
import threading

import pytest
from plans import chain

import belay


class CuttingProxy:
    """Forwards connections to a unix socket and cuts each after so many bytes of answers, as `sizes` says; after those none is cut."""

    def __init__(self, path, sizes):
        self._path = path
        self._sizes = iter(sizes)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.cuts = 0
        self._sockets = []

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for one in self._sockets:
            self._cut(one)
            one.close()

    def _accept(self):
        while True:
            try:
                here, _ = self._listener.accept()
            except OSError:
                return
            there = socket.socket(socket.AF_UNIX)
            there.connect(self._path)
            self._sockets += [here, there]
            threading.Thread(target=self._copy, args=(here, there, None), daemon=True).start()
            threading.Thread(target=self._copy, args=(there, here, next(self._sizes, None)), daemon=True).start()

    def _copy(self, source, sink, limit):
        try:
            while data := source.recv(65536 if limit is None else max(limit, 1)):
                if limit is not None and len(data) >= limit:
                    sink.sendall(data[:limit])
                    self.cuts += 1
                    break
                sink.sendall(data)
                limit = None if limit is None else limit - len(data)
        except OSError:
            pass
        self._cut(source)
        self._cut(sink)

    @staticmethod
    def _cut(one):
        try:
            one.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


@pytest.mark.parametrize("seed", range(3))
def test_a_connection_that_is_cut_at_any_byte(belay_server, seed):
    with belay_server.connect() as direct:
        execution = direct.start(chain(30))
        expected = [event.id for event in execution.events()]
    source = random.Random(seed)
    sizes = [source.randrange(1, 4000) for _ in range(12)]
    with CuttingProxy(belay_server.url.removeprefix("unix:"), sizes) as proxy:
        with belay.Client.connect(proxy.url, heartbeat=0.5) as client:
            assert [event.id for event in client.execution(execution.name).events()] == expected
            assert client.execution(execution.name).wait(30).succeeded
        assert proxy.cuts > 2


def test_a_blob_over_a_connection_that_is_cut(belay_server):
    plan = {"id": "blob", "inputs": {"x": {}}, "steps": [{"id": "a", "tool": "noop", "arguments": {"output": "${inputs.x}" * 8}}]}
    with belay_server.connect() as direct:
        execution = direct.start(plan, inputs={"x": "é" * 50_000})
        execution.wait(60)
    with CuttingProxy(belay_server.url.removeprefix("unix:"), [3000, 90_000, 200_000, 7, 150_000]) as proxy:
        with belay.Client.connect(proxy.url, heartbeat=0.5) as client:
            assert client.execution(execution.name).output("a") == "é" * 400_000
        assert proxy.cuts >= 4


def test_a_server_that_is_killed_again_and_again(own_server):
    source = random.Random(1)
    with own_server.connect() as client:
        execution = client.start(chain(250, sleep_ms=4))
        events, cursor, kills = [], None, 0
        while not events or events[-1].kind != "execution_finished":
            stream = execution.events(after=cursor)
            for event in stream:
                events.append(event)
                cursor = event.cursor
                if kills < 6 and source.random() < 0.01:
                    kills += 1
                    own_server.kill()
                    own_server.start()
                # A new reader with the cursor of the old one, as another process would.
                if source.random() < 0.02:
                    break
            stream.close()
        assert kills >= 3
        assert [event.sequence for event in events] == list(range(1, len(events) + 1))
        assert len({event.id for event in events}) == len(events)
        assert sum(event.kind == "step_completed" for event in events) == 250
