"""The commands of the README work word for word."""

import os
import re
import shutil
import subprocess
import sys

import pytest
from conftest import REPOSITORY

README = REPOSITORY / "clients/python/README.md"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README.read_text("utf-8"), re.M | re.S)


def test_the_commands_work(own_server, tmp_path):
    # A checkout with what the commands name; a link would let them write into this one.
    shutil.copytree(REPOSITORY / "clients/python", tmp_path / "clients/python", ignore=shutil.ignore_patterns("__pycache__", ".*_cache", "tests"))
    (tmp_path / "proto").symlink_to(REPOSITORY / "proto")
    environment = own_server.environment() | {"BELAY_PROGRAM": str(own_server.program), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    environment.pop("PYTHONPATH", None)
    printed = ""
    for language, text in BLOCKS:
        if language == "python":
            name = re.match(r"# (\w+\.py)\n", text)[1]
            (tmp_path / name).write_text(text, "utf-8")
            continue
        assert language == "sh"
        done = subprocess.run(["bash", "-ec", text], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=170)
        assert done.returncode == 0, text + done.stdout + done.stderr
        printed += done.stdout
    for part in ("0.1.0", "1 execution_created", "Hello from a planner.", "{'file': 'dist/7.tar'}", "check COMPLETED {'by': 'a planner'}", "DELETED old.txt",
                 "APPROVAL_DENIED", "[{'n': 0}, {'n': 1}, {'n': 2}, {'n': 3}, {'n': 4}]", "1 passed", "derived files are current"):
        assert part in printed, (part, printed)
    assert printed.count("1 execution_created") == 2
    with own_server.connect() as client:
        assert sum(info.plan_id == "hello" for info in client.executions()) == 1


def test_what_it_names_exists():
    text = README.read_text("utf-8")
    import belay

    for name in re.findall(r"`belay\.(\w+)", text):
        assert hasattr(belay, name) or name == "testing", name
    for link in re.findall(r"\]\(([^)#]+)", text):
        assert (README.parent / link).exists(), link
    for variable in re.findall(r"BELAY_\w+", text):
        sources = "".join(path.read_text("utf-8") for path in (README.parent / "src/belay").glob("*.py"))
        assert variable in sources or variable.startswith("BELAY_TLS_"), variable
    assert os.access(README.parent / "check", os.X_OK)


def test_derived_files_that_differ_are_named(tmp_path):
    pytest.importorskip("grpc_tools")
    copy = tmp_path / "clients/python"
    shutil.copytree(REPOSITORY / "clients/python", copy, ignore=shutil.ignore_patterns("__pycache__", ".*_cache", "tests"))
    (tmp_path / "proto").symlink_to(REPOSITORY / "proto")

    def generate(*flags):
        return subprocess.run([sys.executable, str(copy / "generate"), *flags], capture_output=True, text=True, timeout=120)

    assert generate().returncode == 0 and generate("--check").returncode == 0
    (copy / "src/belay/v1/watch_pb2.py").write_text("changed")
    (copy / "src/belay/v1/more_pb2.py").write_text("superfluous")
    with (copy / "src/belay/_sync/client.py").open("a") as file:
        file.write("# changed\n")
    done = generate("--check")
    assert done.returncode == 1
    assert [line for line in done.stderr.splitlines() if line.startswith("not current")] == [
        "not current: src/belay/_sync/client.py", "not current: src/belay/v1/watch_pb2.py", "not current: src/belay/v1/more_pb2.py",
    ]
