"""An approver: watches approvals, decides by a rule of its own, and leaves everything else to people.

    python approver.py --allow 'build/*'

The rule: a call that has run, and would change only files that match, is approved unless its risk is high. Forms, calls that have not run, and all others stay
pending. Under `separate_duties` the approver has to be another principal than the one that started the execution.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys

import belay


def note_for(approval: belay.Approval, pattern: str) -> str | None:
    """Returns the note with which the rule approves; None when the decision is a person's."""
    if approval.kind != "EFFECT" or approval.risk == "HIGH":
        return None
    changes = list(approval.changes())
    # Paths are compared as they are: a name that cannot be shown in full is a person's decision.
    if not changes or any(change.flags or not fnmatch.fnmatchcase(change.path, pattern) for change in changes):
        return None
    return f"{len(changes)} change(s), all of them in {pattern}"


def main() -> int:
    """Runs the approver until it is stopped, or as many approvals were seen as `--count` says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--allow", required=True, help="the glob that all changed paths have to match")
    parser.add_argument("--count", type=int, help="leave after so many approvals were looked at")
    options = parser.parse_args()
    seen: set[str] = set()
    with belay.Client.connect() as client, client.approvals.watch() as updates:
        for update in updates:
            if update.kind == "reset":
                seen.clear()
            if update.kind == "listed":
                print("watching", flush=True)
            approval = update.approval
            if approval is None or not approval.is_pending or approval.name in seen:
                continue
            seen.add(approval.name)
            try:
                note = note_for(approval, options.allow)
                if note is not None:
                    # Sends the digest of what was looked at: what has changed since is not approved.
                    approval.approve(note)
                print(f"{approval.id}: {approval.operation}: {note or 'left to people'}", flush=True)
            except (belay.PreconditionError, belay.PermissionDeniedError) as error:
                print(f"{approval.id}: {error.message}", flush=True)
            if options.count is not None and len(seen) >= options.count:
                return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
