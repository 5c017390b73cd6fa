"""The examples are programs, and do what they say."""

import subprocess
import sys

import pytest
from conftest import REPOSITORY
from plans import DELETION, FORM

EXAMPLES = REPOSITORY / "clients/python/examples"


class Program:
    """An example that runs beside the test."""

    def __init__(self, server, name, *arguments):
        self.process = subprocess.Popen(
            [sys.executable, str(EXAMPLES / name), *arguments], env=server.environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def __enter__(self):
        self.before = []
        for line in self.process.stdout:
            if line == "watching\n":
                return self
            self.before.append(line)
        self.__exit__()
        raise AssertionError("".join(self.before))

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def rest(self):
        """Returns what it prints until it ends by itself."""
        printed, _ = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, printed
        return "".join(self.before) + printed


def run(server, name, *arguments):
    return subprocess.run([sys.executable, str(EXAMPLES / name), *arguments], env=server.environment(), capture_output=True, text=True, timeout=60)


def test_the_planner_edits_its_plan_and_returns_to_its_execution(own_server, tmp_path):
    workspace = own_server.state_dir.parent / "work"
    workspace.mkdir()
    done = run(own_server, "planner.py", "--workspace", str(workspace), "--key", "monday")
    assert done.returncode == 0, done.stderr
    assert "read failed" in done.stdout and "the plan is edited" in done.stdout and "settings: {}" in done.stdout
    assert (workspace / "settings.json").read_text() == "{}\n"
    again = run(own_server, "planner.py", "--workspace", str(workspace), "--key", "monday")
    assert again.returncode == 0 and again.stdout.splitlines()[0] == done.stdout.splitlines()[0]
    (workspace / "settings.json").write_text('{"a": 1}')
    other = run(own_server, "planner.py", "--workspace", str(workspace))
    assert 'settings: {"a": 1}' in other.stdout and "edited" not in other.stdout


def plan(path, remove=None):
    steps = [
        {"id": "write", "tool": "write_file", "arguments": {"path": path, "content": "x"}},
        {"id": "verified", "depends_on": ["write"], "wait": {"signal": "verified"}},
    ]
    if remove:
        steps.append({"id": "remove", "tool": "delete_file", "depends_on": ["verified"], "arguments": {"path": remove}})
    return {"id": "work", "outputs": {"verdict": "${verified.result}"}, "steps": steps}


def test_the_verifier_signals_and_denies(own_server):
    with own_server.connect() as client, Program(own_server, "verifier.py", "--count", "3") as program:
        good = client.start(plan("out/a.txt"), labels={"verify": "yes"})
        assert good.result(60) == {"verdict": {"accepted": True, "problems": []}}
        bad = client.start(plan("src/a.txt"), labels={"verify": "yes"})
        assert bad.result(60)["verdict"] == {"accepted": False, "problems": ["src was created outside of out/", "src/a.txt was created outside of out/"]}
        other = client.start(DELETION)
        denied = client.start(plan("src/b.txt", remove="src/b.txt"), labels={"verify": "yes"})
        assert denied.wait(60).state == "PARTIAL"
        assert "only files below out/ may change" in denied.step("remove").failure.message
        assert other.approvals() or not other.get().ended, "an execution without the label is not the verifier's"
        printed = program.rest()
        assert f"{good.id}: accepted" in printed and f"{denied.id}: denied" in printed


def test_the_approver_decides_by_its_rule_and_leaves_the_rest(own_server, eventually):
    token = own_server.add_principal("bot", "approver")
    with own_server.connect() as client:
        waiting = client.start(DELETION)
        eventually(waiting.approvals)
        environment = own_server.environment()
        own_server.environment = lambda: environment | {"BELAY_SERVER": own_server.http_url, "BELAY_TOKEN": token}
        with Program(own_server, "approver.py", "--allow", "build/*", "--count", "3") as program:
            own_server.environment = lambda: environment
            steps = [
                {"id": "write", "tool": "write_file", "arguments": {"path": "build/a.o", "content": "x"}},
                {"id": "clean", "tool": "delete_file", "depends_on": ["write"], "arguments": {"path": "build/a.o"}},
            ]
            built = client.start({"id": "clean", "steps": steps})
            assert built.wait(60).succeeded
            form = client.start(FORM)
            printed = program.rest()
        assert "all of them in build/*" in printed and printed.count("left to people") >= 1
        assert [one.decided_by for one in client.approvals.list(execution=built, states=())] == ["person:bot"]
        assert waiting.approvals()[0].is_pending and form.approvals()[0].is_pending


@pytest.mark.parametrize("name", ["planner.py", "verifier.py", "approver.py"])
def test_the_examples_say_how_they_are_used(own_server, name):
    done = run(own_server, name, "--help")
    assert done.returncode == 0 and f"python {name}" in done.stdout
