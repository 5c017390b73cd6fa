"""Has each of the real agents work, in the sandbox and through the proxy, against a server that answers, refuses, or breaks off. See `run`."""

import json
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

BELAY, MODULES, ONLY = sys.argv[1], pathlib.Path(sys.argv[2]).resolve(), sys.argv[3:]
HERE = pathlib.Path(__file__).resolve().parent
# The commands of the agents are those that Belay knows: only their programs are elsewhere.
BIN = "/opt/agents/node_modules/.bin"

# The classes that an end may have. Some agents try again for minutes when their model is not there: the plan's time limit ends them.
CLASSES = {
    "429": {"RATE_LIMIT", "TIMEOUT"},
    "401": {"FATAL", "TIMEOUT"},
    "500": {"TRANSIENT", "TIMEOUT"},
    "cut": {"TRANSIENT", "TIMEOUT"},
}


def agents(port, work):
    """The settings of each agent for a server, and its model."""
    url = f"http://127.0.0.1:{port}"
    configs = {name: work / f"{name}-{port}" for name in ("codex", "opencode", "gemini")}
    for folder in configs.values():
        folder.mkdir()
    (configs["codex"] / "config.toml").write_text(
        'model_provider = "scripted"\n[model_providers.scripted]\nname = "scripted"\n'
        f'base_url = "{url}/v1"\nwire_api = "responses"\nenv_key = "OPENAI_API_KEY"\nrequest_max_retries = 1\nstream_max_retries = 1\n'
    )
    provider = {"npm": "@ai-sdk/openai-compatible", "name": "s", "options": {"baseURL": f"{url}/v1", "apiKey": "sk-x"}, "models": {"m": {"name": "m"}}}
    (configs["opencode"] / "opencode.json").write_text(json.dumps({"provider": {"s": provider}, "autoupdate": False, "share": "disabled"}))
    (configs["gemini"] / "settings.json").write_text(json.dumps({"security": {"auth": {"selectedType": "gemini-api-key"}}}))
    return {
        "codex": ("m", {"config_dir": str(configs["codex"]), "env": {"OPENAI_API_KEY": "sk-x"}}),
        "claude": ("m", {"env": {"ANTHROPIC_API_KEY": "sk-x", "ANTHROPIC_BASE_URL": url, "CLAUDE_CODE_MAX_RETRIES": "1"}}),
        "gemini": ("gemini-2.5-pro", {"config_dir": str(configs["gemini"]), "env": {"GEMINI_API_KEY": "sk-x", "GOOGLE_GEMINI_BASE_URL": url}}),
        "opencode": ("s/m", {"config_dir": str(configs["opencode"])}),
    }


def free_port():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


def belay(*words):
    return subprocess.run([BELAY, "--state-dir", str(work / "state"), *words], capture_output=True, text=True, cwd=work, timeout=300)


def check(name, model, kind, settings):
    """Why an agent's run is not as it should be; None where it is."""
    workspace, case = work / f"w-{name}-{kind}", f"{name}-{kind}"
    workspace.mkdir()
    arguments = {"task": "Make the file made.txt.", "model": model}
    step = {"id": "a", "tool": name, "arguments": arguments, "attempt_timeout": "40s", "retry": {"max_attempts": 1}}
    (work / f"{case}.json").write_text(json.dumps({"id": "p", "steps": [step]}))
    config = ["--config", str(settings)]
    ran = belay("run", str(work / f"{case}.json"), "--workspace", str(workspace), "--approve", "auto", "--id", case, *config)
    got = belay("executions", "get", case, "-o", "json", *config)
    try:
        step = json.loads(got.stdout)["steps"][0]
    except (ValueError, KeyError):
        return f"it has no record: {ran.stderr} {got.stderr}"
    made = workspace / "made.txt"
    if kind == "ok":
        output = step.get("output") or {}
        if ran.returncode != 0 or not made.exists() or output.get("text") != "I made the file.":
            return f"it has not done its task: {json.dumps(step)[:2000]}"
        if not (output.get("usage") or {}).get("output_tokens"):
            return f"its tokens are not known: {output}"
        return None
    failure = step.get("failure") or {}
    found = failure.get("errorClass", "").removeprefix("ERROR_CLASS_")
    if found not in CLASSES[kind]:
        return f"its end is {found or 'no failure'} and should be one of {sorted(CLASSES[kind])}: {json.dumps(step)[:2000]}"
    return "half of its work is there" if made.exists() else None


failed = passed = 0
with tempfile.TemporaryDirectory() as folder:
    work = pathlib.Path(folder)
    for kind in ["ok", *CLASSES]:
        port = free_port()
        server = subprocess.Popen([sys.executable, str(HERE / "server.py"), str(port), kind])
        try:
            for _ in range(100):
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.05)
            known = agents(port, work)
            settings = work / f"{kind}.json"
            settings.write_text(json.dumps({
                "commands": {"read_only": [{"from": str(MODULES), "at": "/opt/agents/node_modules"}], "path": [BIN]},
                # An agent that its time limit ended would wait for a person, but for `fetch_only`.
                "network": {"profiles": {"model": {"host_services": [f"127.0.0.1:{port}"], "fetch_only": True}}},
                "agents": {name: {**of_agent, "network": "model"} for name, (_, of_agent) in known.items()},
            }))
            for name, (model, _) in known.items():
                if ONLY and name not in ONLY:
                    continue
                began = time.monotonic()
                why = check(name, model, kind, settings)
                took = f"{time.monotonic() - began:.1f} s"
                print(f"test {name} {kind} ... {'ok' if why is None else 'FAILED'} ({took})", flush=True)
                if why is not None:
                    print(f"  {why}")
                    failed += 1
                passed += why is None
        finally:
            server.kill()
            server.wait()
print(f"\n{passed} passed, {failed} failed, 0 skipped")
sys.exit(1 if failed else 0)
