"""Runs the contract cases of tests/contract against the Python client. `clients/python/contract` calls it; tests/contract/README.md has the format."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import importlib
import inspect
import itertools
import json
import sys
import time
import traceback
from pathlib import Path

import belay
from belay.testing import Server
from scripted_server import ScriptedServer

CASES = Path(__file__).resolve().parents[3] / "tests" / "contract" / "cases.json"


class Failed(Exception):
    """A case does not hold."""


class Blocking:
    """A client of asyncio that is called like a blocking one: what it returns is awaited in a loop of its own."""

    def __init__(self, target, loop):
        self._target = target
        self._loop = loop

    def __getattr__(self, name):
        found = getattr(self._target, name)
        if not callable(found):
            return self._wrap(found)

        def call(*arguments, **named):
            plain = [getattr(one, "_target", one) for one in arguments]
            return self._wrap(found(*plain, **{key: getattr(one, "_target", one) for key, one in named.items()}))

        return call

    def _wrap(self, value):
        if inspect.isawaitable(value):

            async def wait():
                return await value

            return self._wrap(self._loop.run_until_complete(wait()))
        if isinstance(value, list):
            return [self._wrap(one) for one in value]
        if type(value).__name__.startswith("Async") or inspect.isasyncgen(value):
            return Blocking(value, self._loop)
        return value

    def __iter__(self):
        return self

    def __next__(self):
        try:
            return self._wrap(self._target.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None


def connector(name, loop):
    """Returns the function that connects a client: `sync`, `async`, or `MODULE:CLASS` for another one with the same methods."""
    if name == "async":
        return lambda *arguments, **options: Blocking(loop.run_until_complete(belay.AsyncClient.connect(*arguments, **options)), loop)
    if name == "sync":
        return belay.Client.connect
    module, _, kind = name.partition(":")
    return getattr(importlib.import_module(module), kind).connect


class Run:
    """One case, from its first step to its last."""

    def __init__(self, case, plans, connect, server):
        self._case = case
        self._plans = plans
        self._connect = connect
        self._server = server
        self._kept = {}
        self._clients = []
        self._namespace = "default" if case["server"] == "scripted" else case["name"].replace("_", "-")[:64]
        self._kept["client"] = self.connect()

    def close(self):
        for client in self._clients:
            client.close()

    def carry_out(self, step):
        """Carries out a step and compares what came of it."""
        step = dict(step)
        do, name, expect, error = (step.pop(key, None) for key in ("do", "as", "expect", "error"))
        arguments = {key: self._value(value) for key, value in step.items()}
        self._client = arguments.pop("client", self._kept["client"])
        if name and do in ("start", "fork", "open_events", "open_executions", "connect"):
            arguments["keep"] = name
        try:
            observed = getattr(self, do)(**arguments)
        except belay.BelayError as raised:
            if error is None:
                raise Failed(f"{do} raised {type(raised).__name__}: {raised}") from raised
            self._check_error(raised, error)
            return
        if error is not None:
            raise Failed(f"{do} raised nothing, and {error} was expected")
        if name and name not in self._kept:
            self._kept[name] = observed
        for key, wanted in (expect or {}).items():
            self._compare(f"{do}.{key}", observed.get(key), wanted)

    def _value(self, value):
        if isinstance(value, dict):
            if set(value) == {"$"}:
                name, *path = value["$"].split(".")
                found = self._kept[name]
                for part in path:
                    found = found[part] if isinstance(found, dict) else getattr(found, part)
                return found
            if set(value) == {"plan"} and isinstance(value["plan"], str):
                return self._plans[value["plan"]]
            if set(value) == {"repeat", "times"}:
                return value["repeat"] * value["times"]
            return {key: self._value(one) for key, one in value.items()}
        return [self._value(one) for one in value] if isinstance(value, list) else value

    def _compare(self, where, found, wanted):
        matchers = {
            "json": lambda want: json.loads(want) == found and json.dumps(json.loads(want)) == json.dumps(found),
            "length": lambda want: len(found) == want,
            "contains": lambda want: want in found,
            "without": lambda want: not set(want) & set(found) and len(found) > 0,
            "set": lambda want: sorted(found) == sorted(want),
            "counting_from": lambda want: found == list(range(want, want + len(found))) and len(found) > 0,
            "unique": lambda want: len(set(found)) == len(found) and len(found) > 0,
            "one_of": lambda want: found in want,
            "not": lambda want: found != want,
            "at_least": lambda want: found >= want,
        }
        matcher = next(iter(wanted)) if isinstance(wanted, dict) and len(wanted) == 1 else None
        if matcher in matchers:
            want = self._value(wanted[matcher])
            if not matchers[matcher](want):
                raise Failed(f"{where} is {_short(found)}, which does not fit {matcher}: {_short(want)}")
        elif found != self._value(wanted):
            raise Failed(f"{where} is {_short(found)} instead of {_short(self._value(wanted))}")

    def _check_error(self, error, wanted):
        found = {
            "code": error.code,
            "reason": error.reason,
            "page": error.page,
            "retry_after": error.retry_after,
            "metadata": error.metadata,
            "fields": [violation.field for violation in error.field_violations],
            "usage": isinstance(error, belay.UsageError),
            "failed": error.info.state if isinstance(error, belay.ExecutionFailedError) else None,
            "message": error.message,
        }
        for key, want in wanted.items():
            want = self._value(want)
            fits = want in found[key] if key == "message" else found[key] == want
            if not fits:
                raise Failed(f"the error's {key} is {_short(found[key])} instead of {_short(want)}: {error}")

    # Operations: their names and arguments are those of tests/contract/README.md.

    def connect(self, over="unix", token=None, keep=None, **options):
        if isinstance(self._server, ScriptedServer):
            client = self._connect(self._server.url, **options)
        else:
            url = self._server.http_url if over == "tcp" else self._server.url
            client = self._connect(url, token, namespace=self._namespace, **options)
        self._clients.append(client)
        if keep:
            self._kept[keep] = client
        return client

    def add_principal(self, name, roles):
        return {"token": self._server.add_principal(name, *roles)}

    def kill_server(self):
        self._server.kill()
        return {}

    def start_server(self):
        self._server.start()
        return {}

    def command(self, arguments):
        return {"output": self._server.command(*arguments)}

    def join(self, lists):
        return {"value": list(itertools.chain(*lists))}

    def start(self, plan, keep=None, inputs_json=None, **options):
        if inputs_json is not None:
            options["inputs"] = json.loads(inputs_json)
        return self._handle(self._client.start(plan, **options), keep)

    def fork(self, execution, keep=None, **options):
        return self._handle(self._execution(execution).fork(**options), keep)

    def _handle(self, execution, keep):
        if keep:
            self._kept[keep] = execution
        return {"name": execution.name, "id": execution.id}

    def validate(self, plan):
        return {"fields": [problem.field for problem in self._client.validate(plan)]}

    def _execution(self, execution):
        return self._client.execution(execution if isinstance(execution, str) else execution.name)

    def get(self, execution):
        return _info(self._execution(execution).get())

    def wait(self, execution, timeout):
        return _info(self._execution(execution).wait(timeout))

    def result(self, execution, timeout):
        return {"value": self._execution(execution).result(timeout)}

    def events(self, execution, after=None):
        return _events(self._execution(execution).events(after))

    def open_events(self, execution, after=None, keep=None):
        self._kept[keep] = self._execution(execution).events(after)
        return {}

    def read_events(self, stream, count=None, until=None):
        events = []
        for event in stream:
            events.append(event)
            if len(events) == count or event.kind == until:
                break
        return _events(events)

    def steps(self, execution):
        steps = list(self._execution(execution).steps())
        return {"ids": [step.id for step in steps], "states": [step.state for step in steps]}

    def step(self, execution, step):
        found = self._execution(execution).step(step)
        return {name: getattr(found, name) for name in ("state", "title", "output", "skip_reason", "attempt")}

    def output(self, execution, step):
        handle = self._execution(execution)
        output = handle.step(step).output
        observed = {"value": handle.output(step), "is_blob": isinstance(output, belay.Blob)}
        if observed["is_blob"]:
            data = handle.read_blob(output)
            observed |= {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        return observed

    def read_blob(self, execution, blob):
        data = self._execution(execution).read_blob(blob)
        return {"size": len(data), "text": data.decode("utf-8")}

    def artifacts(self, execution, kind=None):
        found = list(self._execution(execution).artifacts(kind=kind))
        return {"steps": [one.step_id for one in found], "paths": [one.path for one in found], "kinds": [one.kind for one in found]}

    def executions(self, filter=None, page_size=0):
        found = list(self._client.executions(filter, page_size=page_size))
        return {"names": [info.name for info in found], "states": [info.state for info in found]}

    def open_executions(self, filter=None, page_size=0, keep=None):
        self._kept[keep] = iter(self._client.executions(filter, page_size=page_size))
        return {}

    def read_executions(self, list, count=None):
        return {"names": [info.name for info in itertools.islice(list, count)]}

    def approval(self, execution, step=None):
        end = time.monotonic() + 60
        while time.monotonic() < end:
            for approval in self._execution(execution).approvals():
                if step in (None, approval.step_id):
                    return Shown(approval)
            time.sleep(0.02)
        raise Failed("no approval has become pending within 60 s")

    def show(self, approval):
        return Shown(approval.handle.show())

    def changes(self, approval):
        changes = list(approval.handle.changes())
        return {"paths": [change.path for change in changes], "kinds": [change.kind for change in changes]}

    def approve(self, approval, note="", shown=None):
        return Shown(approval.showing(shown).approve(note))

    def deny(self, approval, reason, shown=None):
        return Shown(approval.showing(shown).deny(reason))

    def skip(self, approval, reason="", shown=None):
        return Shown(approval.showing(shown).skip(reason))

    def answer(self, approval, value, shown=None):
        return Shown(approval.showing(shown).answer(value))

    def requests(self, method):
        found = [request for name, request, _ in self._server.requests if name == method]
        return {
            "count": len(found),
            "cursors": [getattr(request, "cursor", "") for request in found],
            "offsets": [getattr(request, "offset", 0) for request in found],
            "distinct_request_ids": len({getattr(request, "request_id", "") for request in found}),
        }


class Shown(dict):
    """What a client shows of an approval."""

    def __init__(self, handle):
        names = ("name", "id", "kind", "state", "tool", "risk", "operation", "digest", "headline")
        form = handle.form
        super().__init__({name: getattr(handle, name) for name in names}, step=handle.step_id, form_schema=form and form.schema)
        self.handle = handle

    def showing(self, digest):
        """Returns the approval, as if it had shown this digest."""
        if digest is not None:
            self.handle.raw.subject_digest = digest
        return self.handle


def _change(name):
    def change(self, execution, **arguments):
        return _info(getattr(self._execution(execution), name)(**arguments))

    return change


for _name in ("cancel", "pause", "resume", "signal", "retry", "update_plan", "resolve", "retry_step", "skip_step", "set_step_output", "delete"):
    setattr(Run, _name, _change(_name))


def _info(info):
    if info is None:
        return {}
    names = ("state", "labels", "plan_revision", "etag")
    failure = info.failure
    return {name: getattr(info, name) for name in names} | {
        "failure_reason": failure.reason if failure else "",
        "failure_message": failure.message if failure else "",
    }


def _events(stream):
    events = list(stream)
    return {
        "sequences": [event.sequence for event in events],
        "kinds": [event.kind for event in events],
        "ids": [event.id for event in events],
        "steps": [event.step_id for event in events],
        "uids": [event.uid for event in events],
        "reset_reasons": [event.reset_reason for event in events if event.kind == "reset"],
        "cursors": [event.cursor for event in events],
        "cursor": events[-1].cursor if events else "",
    }


def _short(value):
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:297]}…"


def run_case(case, plans, connect, shared):
    """Runs one case; returns None, or why it does not hold."""
    server = run = None
    try:
        if case["server"] == "scripted":
            server = ScriptedServer(case["script"]).__enter__()
        else:
            server = shared if case["server"] == "live" else Server().start()
        run = Run(case, plans, connect, server)
        for number, step in enumerate(case["steps"]):
            try:
                run.carry_out(step)
            except Failed as failure:
                return f"step {number} ({step['do']}): {failure}"
            except Exception:  # noqa: BLE001 - a fault of the client is a failed case
                return f"step {number} ({step['do']}): {traceback.format_exc()}"
        return None
    finally:
        if run is not None:
            run.close()
        if server is not None and server is not shared:
            server.__exit__(None, None, None)


def main(arguments=None):
    """Runs all cases or those that are named; returns the exit code."""
    parser = argparse.ArgumentParser(prog="contract", description="Runs the contract cases against the Python client.")
    parser.add_argument("--client", default="sync", help="sync, async, or MODULE:CLASS")
    parser.add_argument("--cases", type=Path, default=CASES, help="the file with the cases")
    parser.add_argument("--without", action="append", default=[], metavar="CASE", help="leave out this case")
    parser.add_argument("names", nargs="*", help="names of cases; all without one")
    options = parser.parse_args(arguments)
    text = options.cases.read_bytes()
    file = json.loads(text)
    chosen = [case for case in file["cases"] if (not options.names or case["name"] in options.names) and case["name"] not in options.without]
    failed = []
    loop = asyncio.new_event_loop()
    connect = connector(options.client, loop)
    with contextlib.closing(loop), Server() as shared:
        for case in chosen:
            failure = run_case(case, file["plans"], connect, shared)
            print(f"{'FAILED' if failure else 'passed'}  {case['name']}" + (f"\n        {failure}" if failure else ""), flush=True)
            failed += [case["name"]] if failure else []
    print(f"{options.client} client: {len(chosen)} of {len(file['cases'])} cases: {len(chosen) - len(failed)} passed, {len(failed)} failed")
    print(f"cases.json sha256 {hashlib.sha256(text).hexdigest()}")
    return 1 if failed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
