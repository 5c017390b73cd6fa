"""Plans that several tests use."""


def noop(output, **fields):
    """A plan of one step that returns a value."""
    return {"id": "one", "outputs": {"value": "${say.result}"}, "steps": [{"id": "say", "tool": "noop", "arguments": {"output": output}, **fields}]}


def chain(count, sleep_ms=0):
    """A plan of steps one after the other."""
    steps = [{"id": f"s{n}", "tool": "noop", "arguments": {"output": n, "sleep_ms": sleep_ms}} for n in range(count)]
    return {"id": "chain", "steps": steps}


WAITING = {
    "id": "waiting",
    "outputs": {"got": "${wait.result}"},
    "steps": [{"id": "wait", "wait": {"signal": "go"}}],
}

#: A deletion needs an approval under the built-in policy.
DELETION = {
    "id": "deletion",
    "steps": [
        {"id": "write", "tool": "write_file", "arguments": {"path": "old.txt", "content": "one\ntwo\n"}},
        {"id": "remove", "title": "Remove the old file", "tool": "delete_file", "depends_on": ["write"], "arguments": {"path": "old.txt"}},
    ],
}

FORM = {
    "id": "form",
    "outputs": {"version": "${ask.result.version}"},
    "steps": [
        {
            "id": "ask",
            "wait": {
                "form": {
                    "title": "Which version?",
                    "description": "The next one.",
                    "schema": {"type": "object", "required": ["version"], "properties": {"version": {"type": "integer"}}},
                }
            },
        }
    ],
}
