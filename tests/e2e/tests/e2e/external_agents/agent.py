"""An external agent of the tests, which reports as codex does and does what its task says, in good ways and in bad ones."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

task = sys.stdin.read()
mode, _, rest = task.strip().partition(" ")


def report(**event):
    print(json.dumps(event), flush=True)


def say(words):
    report(type="item.completed", item={"type": "agent_message", "text": words})


def end():
    report(type="turn.completed", usage={"input_tokens": 100, "cached_input_tokens": 40, "output_tokens": 10})


def fail(message):
    report(type="turn.failed", error={"message": message})
    sys.exit(1)


def write(name, words):
    with open(name, "w", encoding="utf-8") as file:
        file.write(words)


report(type="thread.started", thread_id="t-1")
if mode == "write":
    with open(os.environ["BELAY_PROMPT_FILE"], encoding="utf-8") as file:
        assert file.read() == task, "the file has another task"
    try:
        open(os.environ["BELAY_PROMPT_FILE"], "a", encoding="utf-8")
        raise AssertionError("the file with the task can be changed")
    except OSError:
        pass
    write(os.path.join(os.environ["HOME"], "notes"), "its home can be written")
    config = os.path.join(os.environ["HOME"], ".codex", "config.toml")
    with open(config, encoding="utf-8") as file:
        said = file.read()
    write(config, "changed")
    report(type="item.started", item={"type": "command_execution", "command": "touch " + rest})
    write(rest, said + os.environ["OWN"])
    if "--model" in sys.argv:
        write("model", sys.argv[sys.argv.index("--model") + 1])
    say("I wrote " + rest)
    end()
elif mode == "status":
    write("half", "half of it")
    fail("exceeded retry limit, last status: " + rest)
elif mode == "lie":
    write("half", "half of it")
    say("done")
    end()
    sys.exit(3)
elif mode == "silent":
    write("half", "half of it")
    say("I am done")
elif mode == "tool":
    # What its own tool has printed is not its own failure.
    report(type="item.completed", item={"type": "command_execution", "aggregated_output": "429 permission denied", "exit_code": 1})
    fail("stream disconnected before completion")
elif mode == "exit":
    say("done")
    end()
    sys.exit(int(rest))
elif mode == "linger":
    write("done", "before the end")
    say("done")
    end()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)
elif mode == "closes":
    write("done", "before the end")
    say("done")
    end()
    sys.stdout.flush()
    os.close(1)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)
elif mode == "glued":
    write("done", "glued")
    sys.stdout.write("loading the model... ")
    end()
elif mode == "child":
    # It goes on, has its output, and does not end when it is asked.
    subprocess.Popen([sys.executable, "-c", "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"])
    write("done", "by the parent")
    say("done")
    end()
elif mode == "flood":
    line = "x" * 1000 + "\n"
    for _ in range(int(rest)):
        sys.stdout.write(line * 1000)
    sys.stdout.write("y" * (32 << 20) + "\n")
    sys.stderr.write("z" * (32 << 20))
    say("done")
    end()
elif mode == "ask":
    path, _, times = rest.partition(" ")
    headers = {"X-Api-Key": os.environ["MODEL_KEY"], "Content-Type": "application/json"}
    for n in range(int(times)):
        request = urllib.request.Request(os.environ["MODEL_URL"] + path, b"{}", headers)
        try:
            urllib.request.urlopen(request).read()
        except urllib.error.HTTPError as error:
            write("half", "half of it")
            fail(f"unexpected status {error.code}: {error.read().decode()}")
    write("asked", str(n + 1))
    say(f"asked {n + 1} times")
    # It lies about what it has used.
    end()
elif mode == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    write("half", "half of it")
    print("it works on it", flush=True)
    time.sleep(600)
else:
    fail("there is no such mode: " + mode)
