"""A planner: submits a plan, watches it, and reacts to a failure by an edited plan.

    python planner.py --workspace /path/to/a/folder --key monday

The plan sums up a settings file. Where the file is missing, the planner adds a step that writes one, and the execution continues; what has completed is kept.
With the same key, a planner that was stopped returns to its execution.
"""

from __future__ import annotations

import argparse
import copy
import sys
from typing import Any

import belay

PLAN: dict[str, Any] = {
    "id": "summary",
    "outputs": {"summary": "${summarize.result}"},
    "steps": [
        {"id": "list", "tool": "list_directory", "arguments": {"path": "."}},
        {"id": "read", "tool": "read_file", "depends_on": ["list"], "arguments": {"path": "settings.json"}},
        {"id": "summarize", "tool": "noop", "arguments": {"output": "settings: ${read.result.content}"}},
    ],
}
#: How often the planner edits its plan before it leaves the execution to people.
MAX_EDITS = 3


def edited(plan: dict[str, Any], step_id: str, failure: belay.Failure) -> dict[str, Any] | None:
    """Returns a plan that avoids the failure of a step; None when this planner knows of none."""
    if failure.reason != "FILE_NOT_FOUND":
        return None
    plan = copy.deepcopy(plan)
    step = next(one for one in plan["steps"] if one["id"] == step_id)
    path = step["arguments"]["path"]
    plan["steps"].append({"id": "write_default", "tool": "write_file", "arguments": {"path": path, "content": "{}\n"}})
    step["depends_on"] = [*step.get("depends_on", []), "write_default"]
    return plan


def follow(execution: belay.Execution, cursor: str | None) -> tuple[str | None, dict[str, belay.Failure]]:
    """Prints the events until the execution ends; returns the last cursor, and the failures by step."""
    failures = {}
    for event in execution.events(after=cursor):
        cursor = event.cursor
        print(f"{event.sequence:4} {event.kind} {event.step_id}", flush=True)
        if event.kind == "step_failed" and event.failure is not None:
            failures[event.step_id] = event.failure
        if event.kind == "execution_retried":
            # An earlier run of this planner has reacted to what failed before.
            failures.clear()
    return cursor, failures


def main() -> int:
    """Runs the planner; returns 0 when its execution completed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workspace", help="the folder that the plan works in; without it, a new one")
    parser.add_argument("--key", help="names this run: the same key returns to the same execution")
    options = parser.parse_args()
    plan, cursor = PLAN, None
    with belay.Client.connect() as client:
        execution = client.start(plan, workspace=options.workspace, key=options.key, labels={"planner": "summary"})
        print(f"execution {execution.id}", flush=True)
        for _ in range(MAX_EDITS):
            cursor, failures = follow(execution, cursor)
            changes = [(step, failure, edited(plan, step, failure)) for step, failure in failures.items()]
            known = next((change for change in changes if change[2] is not None), None)
            if known is None:
                break
            step, failure, plan = known[0], known[1], known[2] or plan
            print(f"{step} failed: {failure.message}; the plan is edited", flush=True)
            execution.retry(plan=plan, reason=f"{failure.reason} in {step}")
        try:
            print(execution.result()["summary"])
        except belay.ExecutionFailedError as error:
            print(error, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
