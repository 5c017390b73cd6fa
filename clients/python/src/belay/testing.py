"""A Belay server for tests, and a pytest plugin with it.

The plugin is active wherever the package is installed:

    def test_greeting(belay_client):
        assert belay_client.start(PLAN).result(timeout=30) == {"greeting": "hello"}

`belay_server` is one server for all tests of a session, with a state directory of its own, and `belay_client` a client of it. For a server of a single
test, which it may kill and start again, use `Server` as a context manager. The program is the one of `--belay-program` or BELAY_PROGRAM, else the newer
build of a checkout around the current folder, else `belay` on the PATH; without one, the fixtures skip.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from belay import AsyncClient, Client, ExecutionInfo

#: How long a server may take to start, and to stop, in seconds.
START_TIMEOUT, STOP_TIMEOUT = 30.0, 20.0


def find_program(named: str | os.PathLike[str] | None = None) -> Path | None:
    """Returns the path of the program `belay`, or None when there is none. One that is named has to exist."""
    named = named or os.environ.get("BELAY_PROGRAM")
    if named:
        path = Path(named).absolute()
        if not os.access(path, os.X_OK):
            raise FileNotFoundError(f"BELAY_PROGRAM names {path}, which is no program")
        return path
    for folder in (Path.cwd(), *Path.cwd().parents):
        builds = [folder / "target" / kind / "belay" for kind in ("release", "debug")]
        builds = [build for build in builds if (folder / "proto" / "belay" / "v1").is_dir() and os.access(build, os.X_OK)]
        if builds:
            return max(builds, key=lambda build: build.stat().st_mtime)
    found = shutil.which("belay")
    return Path(found) if found else None


class Server:
    """A `belay serve` of its own state directory, on a unix socket and on TCP. A context manager starts it, and stops and deletes it at the end.

    It ends only the process that it has started.
    """

    def __init__(
        self,
        program: str | os.PathLike[str] | None = None,
        *,
        policy: str | None = None,
        config: str | None = None,
    ) -> None:
        found = find_program(program)
        if found is None:
            raise FileNotFoundError("no program `belay`: set BELAY_PROGRAM to its path")
        #: The path of the program.
        self.program = found
        # Short, since the path of a socket has at most 107 bytes.
        self._folder = Path(tempfile.mkdtemp(prefix="belay-"))
        #: The state directory.
        self.state_dir = self._folder / "state"
        self._arguments: list[str] = []
        for flag, text in (("policy", policy), ("config", config)):
            path = self._folder / f"{flag}.yaml"
            if text is not None:
                path.write_text(text, "utf-8")
                self._arguments += [f"--{flag}", str(path)]
        self._process: subprocess.Popen[str] | None = None
        self._port = 0
        #: The address of the server over TCP, once it has started.
        self.http_url = ""
        atexit.register(self.close)

    @property
    def url(self) -> str:
        """The address of the server's unix socket."""
        return f"unix:{self.state_dir / 'executor.sock'}"

    @property
    def token(self) -> str:
        """The token of the owner of the state directory, for TCP."""
        return (self.state_dir / "token").read_text("utf-8").strip()

    @property
    def pid(self) -> int:
        """The process id of the server."""
        if self._process is None:
            raise RuntimeError("the server does not run")
        return self._process.pid

    def environment(self) -> dict[str, str]:
        """Returns the variables for programs that are to use this server and nothing of the user's."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("BELAY_")}
        return kept | {"XDG_CONFIG_HOME": str(self._folder / "config"), "BELAY_STATE_DIR": str(self.state_dir)}

    def start(self) -> Server:
        """Starts the server on its state directory and returns when it answers. After `kill` or `stop` it continues, on the same port."""
        if self._process is not None:
            raise RuntimeError("the server runs already")
        command = [str(self.program), "serve", "-o", "json", "--state-dir", str(self.state_dir), "--listen", f"127.0.0.1:{self._port}"]
        log = self._folder / "log"
        with log.open("a", encoding="utf-8") as errors:
            process = subprocess.Popen(
                command + self._arguments,
                stdout=subprocess.PIPE,
                stderr=errors,
                stdin=subprocess.DEVNULL,
                text=True,
                env=self.environment(),
            )
        timer = threading.Timer(START_TIMEOUT, process.kill)
        timer.start()
        try:
            started = _read_object(process)
        finally:
            timer.cancel()
        if started is None or "listen" not in started:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
            raise RuntimeError(f"the server has not started: {started or ''} {log.read_text('utf-8')[-2000:]}")
        self._process = process
        self.http_url = str(started["listen"])
        self._port = int(self.http_url.rpartition(":")[2])
        return self

    def kill(self) -> None:
        """Kills the server at once, as a crash would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Stops the server gracefully."""
        self._end(signal.SIGTERM)

    def restart(self) -> None:
        """Kills the server and starts it again on the same state directory."""
        self.kill()
        self.start()

    def send_signal(self, number: int) -> None:
        """Sends the server's process a signal, such as SIGSTOP."""
        os.kill(self.pid, number)

    def _end(self, number: int) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()

    def close(self) -> None:
        """Kills the server and deletes its state directory."""
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)
        atexit.unregister(self.close)

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def connect(self, **options: Any) -> Client:
        """Returns a client of the server over its unix socket; `options` are those of `Client.connect`."""
        return Client.connect(options.pop("url", self.url), **options)

    async def connect_async(self, **options: Any) -> AsyncClient:
        """Returns an asyncio client of the server over its unix socket; `options` are those of `AsyncClient.connect`."""
        return await AsyncClient.connect(options.pop("url", self.url), **options)

    def command(self, *arguments: str, timeout: float = 60.0) -> str:
        """Runs the command line against this server and returns what it printed. Raises `CalledProcessError` when it fails."""
        done = subprocess.run(
            [str(self.program), *arguments, "--state-dir", str(self.state_dir)],
            capture_output=True,
            text=True,
            timeout=timeout,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
        )
        if done.returncode != 0:
            raise subprocess.CalledProcessError(done.returncode, done.args, done.stdout, done.stderr)
        return done.stdout

    def add_principal(self, name: str, *roles: str) -> str:
        """Adds a principal with these roles (`planner`, `viewer`, `approver`, `operator`) and returns its token."""
        flags = [part for role in roles for part in ("--role", role)]
        answer = json.loads(self.command("principals", "add", name, *flags, "-o", "json"))
        return str(answer["token"])

    def workspace_of(self, info: ExecutionInfo) -> Path:
        """Returns the folder in which an execution works."""
        if info.workspace:
            return Path(info.workspace)
        return self.state_dir / "workspaces" / info.name.split("/")[1] / info.made_folder


def _read_object(process: subprocess.Popen[str]) -> dict[str, Any] | None:
    """Reads one JSON object from the output of a process; None at its end."""
    text = ""
    assert process.stdout is not None
    for line in process.stdout:
        text += line
        try:
            found: dict[str, Any] = json.loads(text)
            return found
        except ValueError:
            continue
    return None


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the option that names the program."""
    group = parser.getgroup("belay")
    group.addoption("--belay-program", default=None, help="the program `belay` that the fixture `belay_server` starts")


@pytest.fixture(scope="session")
def belay_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A Belay server for all tests of the session."""
    program = find_program(request.config.getoption("--belay-program"))
    if program is None:
        pytest.skip("no program `belay`: set BELAY_PROGRAM to its path")
    with Server(program) as server:
        yield server


@pytest.fixture
def belay_client(belay_server: Server) -> Iterator[Client]:
    """A client of the server of the session."""
    with belay_server.connect() as client:
        yield client
