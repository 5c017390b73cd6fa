"""The pytest plugin, as users have it."""

import subprocess
import sys

import pytest
from plans import noop

from belay.testing import Server, find_program


def run(folder, *arguments, **variables):
    import os

    environment = os.environ | variables
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=100)
    return done.returncode, done.stdout


TEST = """
def test_one(belay_client, belay_server):
    plan = {"id": "t", "outputs": {"v": "${a.result}"}, "steps": [{"id": "a", "tool": "noop", "arguments": {"output": 1}}]}
    assert belay_client.start(plan).result(30) == {"v": 1}
    (open("pid", "w")).write(str(belay_server.pid))
"""


def test_the_fixtures_start_a_server_and_end_it(tmp_path):
    (tmp_path / "test_it.py").write_text(TEST)
    code, printed = run(tmp_path, "--belay-program", str(find_program()))
    assert code == 0 and "1 passed" in printed, printed
    pid = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        import os

        os.kill(pid, 0)


def test_without_a_program_the_fixtures_skip_and_say_why(tmp_path):
    (tmp_path / "test_it.py").write_text(TEST)
    code, printed = run(tmp_path, BELAY_PROGRAM="", PATH="/nowhere")
    assert code == 0 and "1 skipped" in printed and "BELAY_PROGRAM" in printed, printed


def test_a_program_that_is_named_has_to_exist(tmp_path, monkeypatch):
    monkeypatch.setenv("BELAY_PROGRAM", str(tmp_path / "none"))
    with pytest.raises(FileNotFoundError, match="none"):
        find_program()


def test_a_server_that_does_not_start_says_why():
    with pytest.raises(RuntimeError, match="CONFIG_INVALID"):
        server = Server(config="nonsense: true\n")
        try:
            server.start()
        finally:
            server.close()


def test_servers_have_nothing_in_common():
    with Server() as one, Server() as two, one.connect() as first, two.connect() as second:
        assert one.url != two.url and one.http_url != two.http_url
        execution = first.start(noop(1), id="mine")
        assert execution.result(30) == {"value": 1}
        assert one.workspace_of(execution.info) == one.state_dir / "workspaces/default" / execution.info.made_folder
        assert list(second.executions()) == []
        port = one.http_url
        one.stop()
        one.start()
        assert one.http_url == port and execution.get().succeeded
