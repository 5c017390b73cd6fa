"""Connections: addresses, tokens, certificates, and the environment."""

import asyncio
import socket
import ssl
import threading

import pytest
import trustme
from plans import noop
from scripted_server import ScriptedServer

import belay
from belay.settings import Address


@pytest.fixture(autouse=True)
def no_variables(monkeypatch):
    """Takes the variables away that connect would read."""
    for name in ("SERVER", "TOKEN", "STATE_DIR", "GATE", "NAMESPACE", "TLS_CA", "TLS_CERT", "TLS_KEY"):
        monkeypatch.delenv(f"BELAY_{name}", raising=False)


class TlsProxy:
    """Ends TLS in front of a server on TCP, as a proxy would. With `client_ca` it asks for a client's certificate."""

    def __init__(self, target, certificate, client_ca=None):
        host, _, port = target.removeprefix("http://").rpartition(":")
        self._target = (host, int(port))
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificate.configure_cert(self._context)
        self._context.set_alpn_protocols(["h2"])
        if client_ca is not None:
            client_ca.configure_trust(self._context)
            self._context.verify_mode = ssl.CERT_REQUIRED
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._writers = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        assert self._ready.wait(20)
        return self

    def __exit__(self, *_):
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(20)

    def _run(self):
        asyncio.set_event_loop(self._loop)
        self._loop.set_exception_handler(lambda loop, context: None)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self):
        self._stop = asyncio.Event()
        server = await asyncio.start_server(self._connect, "127.0.0.1", 0, ssl=self._context)
        self.url = f"https://localhost:{server.sockets[0].getsockname()[1]}"
        self._ready.set()
        await self._stop.wait()
        server.close()
        for writer in self._writers:
            writer.transport.abort()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()

    async def _connect(self, reader, writer):
        try:
            there_reader, there_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.close()
            return
        self._writers += [writer, there_writer]

        async def copy(source, sink):
            try:
                while data := await source.read(65536):
                    sink.write(data)
                    await sink.drain()
            except (OSError, asyncio.CancelledError):
                pass
            finally:
                sink.close()

        await asyncio.gather(copy(reader, there_writer), copy(there_reader, writer))


@pytest.fixture(scope="module")
def authority():
    """A certificate authority."""
    return trustme.CA()


def files(tmp_path, authority, **names):
    """Writes certificates into files and returns their paths."""
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    client = authority.issue_cert("client@example.com")
    client.private_key_pem.write_to_path(tmp_path / "key.pem")
    client.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    return tmp_path / "ca.pem", tmp_path / "cert.pem", tmp_path / "key.pem"


def test_over_tcp_with_a_token(belay_server):
    with belay.Client.connect(belay_server.http_url, belay_server.token) as client:
        assert client.start(noop(1)).result(30) == {"value": 1}
        assert "belay-token" not in repr(client) and "belay-token" not in repr(client._settings)


@pytest.mark.parametrize("token", [None, "belay-token-wrong"])
def test_without_a_token_that_is_known_nothing_is_answered(belay_server, token):
    with belay.Client.connect(belay_server.http_url, token) as client:
        with pytest.raises(belay.UnauthenticatedError) as caught:
            client.start(noop(1))
        assert caught.value.reason == "UNAUTHENTICATED"
        with pytest.raises(belay.UnauthenticatedError):
            list(client.execution("e").events())


def test_a_role_that_is_missing_is_named(own_server):
    token = own_server.add_principal("reader", "viewer")
    with own_server.connect(url=own_server.http_url, token=token) as client:
        assert list(client.executions()) == []
        with pytest.raises(belay.PermissionDeniedError) as caught:
            client.start(noop(1))
        assert caught.value.reason == "ROLE_MISSING"


def test_tls_and_mtls(belay_server, authority, tmp_path, monkeypatch):
    ca, cert, key = files(tmp_path, authority)
    certificate = authority.issue_cert("localhost")
    with TlsProxy(belay_server.http_url, certificate) as proxy:
        with belay.Client.connect(proxy.url, belay_server.token, belay.TLS(ca=ca)) as client:
            assert client.start(noop(1)).result(30) == {"value": 1}
        with belay.Client.connect(proxy.url, belay_server.token, True, retry_for=0) as client:
            with pytest.raises(belay.UnavailableError) as caught:
                client.execution("e").get()
            assert caught.value.reason == "SERVER_UNREACHABLE" and proxy.url in str(caught.value)
    with TlsProxy(belay_server.http_url, certificate, client_ca=authority) as proxy:
        with belay.Client.connect(proxy.url, belay_server.token, belay.TLS(ca=ca, cert=cert, key=key.read_bytes())) as client:
            assert client.start(noop(1)).result(30) == {"value": 1}
        with belay.Client.connect(proxy.url, belay_server.token, belay.TLS(ca=ca), retry_for=0, timeout=5) as client:
            with pytest.raises((belay.UnavailableError, belay.InternalError)):
                client.execution("e").get()
        for name, value in (("SERVER", proxy.url), ("TOKEN", belay_server.token), ("TLS_CA", ca), ("TLS_CERT", cert), ("TLS_KEY", key)):
            monkeypatch.setenv(f"BELAY_{name}", str(value))

        async def over_asyncio():
            async with await belay.AsyncClient.connect() as client:
                return await (await client.start(noop(2))).result(30)

        assert asyncio.run(over_asyncio()) == {"value": 2}


def test_another_name_in_the_certificate(belay_server, authority, tmp_path):
    ca, _, _ = files(tmp_path, authority)
    with TlsProxy(belay_server.http_url, authority.issue_cert("belay.example.com")) as proxy:
        with belay.Client.connect(proxy.url, belay_server.token, belay.TLS(ca=ca), retry_for=0) as client:
            with pytest.raises(belay.UnavailableError):
                client.execution("e").get()
        with belay.Client.connect(proxy.url, belay_server.token, belay.TLS(ca=ca, server_name="belay.example.com")) as client:
            assert client.start(noop(1)).result(30) == {"value": 1}


def test_a_token_is_sent_in_plain_text_only_on_purpose():
    with pytest.raises(belay.UsageError, match="without encryption"):
        belay.Client.connect("http://server.example.com:7433", "secret")
    belay.Client.connect("http://server.example.com:7433", "secret", False)
    belay.Client.connect("http://server.example.com:7433")
    for local in ("http://127.0.0.1:7433", "http://localhost:7433", "http://[::1]:7433", "unix:/x"):
        belay.Client.connect(local, "secret")


def test_settings_come_from_arguments_then_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert belay.Client.connect().url == "unix:/state/belay/executor.sock"
    monkeypatch.setenv("BELAY_STATE_DIR", str(tmp_path))
    assert belay.Client.connect().url == f"unix:{tmp_path}/executor.sock"
    monkeypatch.setenv("BELAY_SERVER", "http://127.0.0.1:1")
    monkeypatch.setenv("BELAY_GATE", "unix:/gate")
    monkeypatch.setenv("BELAY_TOKEN", "t")
    monkeypatch.setenv("BELAY_NAMESPACE", "team")
    client = belay.Client.connect()
    assert client.url == "http://127.0.0.1:1" and client.namespace == "team" and client._settings.token == "t"
    assert client._settings.address_of("ApprovalService").url == "unix:/gate"
    named = belay.Client.connect("unix:/a", "u", namespace="other")
    assert named.url == "unix:/a" and named.namespace == "other" and named._settings.token == "u"
    assert named._settings.address_of("ApprovalService").url == "unix:/a"


@pytest.mark.parametrize("url", ["", "h:1", "unix:b.sock", "http://h", "http://:1", "http://h:99999", "http://h:0", "http://h:1/x", "ftp://h:1", "http://a@h:1", 7])
def test_addresses_that_are_none(url):
    with pytest.raises(belay.UsageError, match="`url`"):
        belay.Client.connect(url)


def test_addresses():
    assert Address.parse("unix:///run/b.sock", "url").target == "unix:/run/b.sock"
    assert Address.parse("http://[::1]:7/", "url").target == "[::1]:7"
    assert Address.parse("https://h:1", "url").is_encrypted


@pytest.mark.parametrize(
    "options, field",
    [
        ({"namespace": "No Such"}, "namespace"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"heartbeat": 0.01}, "heartbeat"),
        ({"token": "with space"}, "token"),
        ({"token": ""}, "token"),
        ({"tls": "ca.pem"}, "tls"),
        ({"tls": belay.TLS()}, "tls"),
    ],
)
def test_settings_that_are_not_valid_are_named(options, field):
    with pytest.raises(belay.UsageError) as caught:
        belay.Client.connect("unix:/x", **options)
    assert caught.value.field_violations[0].field == field


def test_certificates_that_cannot_be_used_are_named(tmp_path):
    for tls, field in ((belay.TLS(ca=tmp_path / "none.pem"), "tls.ca"), (belay.TLS(cert=b"x"), "tls.key")):
        with belay.Client.connect("https://localhost:1", tls=tls) as client:
            with pytest.raises(belay.UsageError) as caught:
                client.execution("e").get()
        assert caught.value.field_violations[0].field == field


def test_a_server_that_is_not_there():
    with belay.Client.connect("unix:/nowhere/belay.sock", retry_for=0.2) as client:
        with pytest.raises(belay.UnavailableError) as caught:
            client.execution("e").get()
    assert caught.value.reason == "SERVER_UNREACHABLE" and "unix:/nowhere/belay.sock" in str(caught.value)


def test_a_server_that_speaks_something_else():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def answer():
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 5\r\n\r\nhello")

        threading.Thread(target=answer, daemon=True).start()
        with belay.Client.connect(f"http://127.0.0.1:{listener.getsockname()[1]}", retry_for=0.3, timeout=3) as client:
            with pytest.raises((belay.UnavailableError, belay.InternalError)):
                client.execution("e").get()


def test_a_closed_client_says_so(belay_server):
    client = belay_server.connect()
    client.close()
    with pytest.raises(belay.UsageError, match="closed"):
        list(client.executions())


def test_the_callers_trace_is_passed_on():
    from opentelemetry.sdk.trace import TracerProvider

    with ScriptedServer({"GetExecution": [{"send": [{"name": "namespaces/default/executions/e"}]}]}) as server:
        with belay.Client.connect(server.url, "t") as client:
            client.execution("e").get()
            with TracerProvider().get_tracer("test").start_as_current_span("planner") as span:
                client.execution("e").get()
        outside, inside = (metadata for _, _, metadata in server.requests)
    assert "traceparent" not in outside
    assert inside["traceparent"].split("-")[1] == f"{span.get_span_context().trace_id:032x}"
    assert inside["authorization"] == "Bearer t" and inside["belay-contract"] == str(belay.CONTRACT_REVISION)
    assert inside["user-agent"].startswith(f"belay-python/{belay.__version__}")


def test_the_revision_is_the_contracts():
    import re

    from conftest import REPOSITORY

    found = re.search(r"REVISION: u32 = (\d+);", (REPOSITORY / "proto/src/contract.rs").read_text("utf-8"))
    assert found and int(found[1]) == belay.CONTRACT_REVISION
