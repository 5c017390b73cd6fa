"""A verifier: watches all executions that ask for it, checks their results and artifacts, and signals what it has found or denies a call.

    python verifier.py --below out/

It looks after executions with the label `verify`. One that waits for the signal `verified` gets it, with `accepted` and `problems`: each file that its calls
have committed lies below the folder, no output is empty, and the digest of each small output is that of its bytes. A call that would change a file elsewhere
is denied; what stays inside is left to people.
"""

from __future__ import annotations

import argparse
import hashlib
import sys

import belay


def is_inside(path: str, below: str) -> bool:
    """Whether a path is the folder or lies below it."""
    return f"{path}/".startswith(below)


def problems_of(execution: belay.Execution, below: str) -> list[str]:
    """Returns what is wrong with the results and artifacts of an execution."""
    problems = []
    for artifact in execution.artifacts():
        if artifact.kind == "FILE":
            if not is_inside(artifact.path, below):
                problems.append(f"{artifact.path} was {artifact.change.lower()} outside of {below}")
            continue
        if artifact.size_bytes <= len('""'):
            problems.append(f"the output of {artifact.step_id} is empty")
        elif artifact.digest.startswith("sha256:"):
            digest = hashlib.sha256(execution.read_artifact(artifact)).hexdigest()
            if artifact.digest != f"sha256:{digest}":
                problems.append(f"the output of {artifact.step_id} is not what was recorded")
    return problems


def verify(execution: belay.Execution, below: str, verified: set[tuple[str, str]]) -> None:
    """Signals and denies what an execution waits for, once for each wait."""
    for step in execution.steps():
        waits = step.raw.wait.signal == "verified" and step.state == "WAITING"
        if waits and (execution.name, step.id) not in verified:
            verified.add((execution.name, step.id))
            problems = problems_of(execution, below)
            # The key makes the signal one signal, also of a verifier that is started again.
            execution.signal("verified", {"accepted": not problems, "problems": problems}, key=f"verified-{execution.id}-{step.id}")
            print(f"{execution.id}: {'; '.join(problems) or 'accepted'}", flush=True)
    for approval in execution.approvals():
        outside = [change.path for change in approval.changes() if not is_inside(change.path, below)] if approval.kind == "EFFECT" else []
        if outside:
            approval.deny(f"changes {outside[0]}, and only files below {below} may change")
            print(f"{execution.id}: denied {approval.operation}", flush=True)


def main() -> int:
    """Runs the verifier until it is stopped, or as many executions have ended as `--count` says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--below", default="out/", help="the folder in which files may change")
    parser.add_argument("--count", type=int, help="leave after so many executions have ended")
    options = parser.parse_args()
    verified: set[tuple[str, str]] = set()
    ended: set[str] = set()
    with belay.Client.connect() as client, client.watch_executions("labels.verify:*") as updates:
        print("watching", flush=True)
        for update in updates:
            if update.execution is None:
                continue
            execution = client.execution(update.execution)
            if update.execution.ended:
                if execution.name not in ended:
                    print(f"{execution.id}: {update.execution.state}", flush=True)
                ended.add(execution.name)
            else:
                try:
                    verify(execution, options.below, verified)
                except (belay.PreconditionError, belay.NotFoundError) as error:
                    # Somebody else was faster, or it has ended meanwhile: the next update shows it.
                    print(f"{execution.id}: {error.message}", flush=True)
            if options.count is not None and len(ended) >= options.count:
                return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
