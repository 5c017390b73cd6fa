"""The contract cases hold for both clients, and find clients that are wrong."""

import hashlib
import json
import re

import contract_runner
import pytest

CASES = json.loads(contract_runner.CASES.read_text("utf-8"))


# A server of a debug build takes more than a minute for 40 MB: once is enough, since both clients read them by the same code.
@pytest.mark.parametrize("client, without", [("sync", []), ("async", ["large_outputs"])])
def test_all_cases_hold(client, without, capsys):
    code = contract_runner.main(["--client", client, *(f"--without={name}" for name in without)])
    printed = capsys.readouterr().out
    assert code == 0, printed
    count = len(CASES["cases"])
    run = count - len(without)
    assert f"{client} client: {run} of {count} cases: {run} passed, 0 failed" in printed
    assert hashlib.sha256(contract_runner.CASES.read_bytes()).hexdigest() in printed


@pytest.mark.parametrize(
    "client, cases",
    [
        ("DropsAnEvent", ["start_and_follow", "watch_through_a_restart", "a_stream_that_breaks_anywhere"]),
        ("RepeatsAnEvent", ["start_and_follow", "watch_through_a_restart", "what_comes_twice"]),
        ("OldDigest", ["each_approval_has_its_digest"]),
        ("RetriesEverything", ["what_is_not_safe_is_sent_once"]),
        ("LosesDigits", ["numbers_of_64_bits"]),
    ],
)
def test_a_wrong_client_is_found(client, cases, capsys):
    assert contract_runner.main(["--client", f"wrong_clients:{client}", *cases]) == 1
    printed = capsys.readouterr().out
    assert re.findall(r"^FAILED  (\w+)$", printed, re.M) == [case["name"] for case in CASES["cases"] if case["name"] in cases]


def test_the_cases_are_well_formed():
    names = [case["name"] for case in CASES["cases"]]
    assert len(set(names)) == len(names) and all(re.fullmatch(r"[a-z0-9_]{1,64}", name) for name in names)
    documented = (contract_runner.CASES.parent / "README.md").read_text("utf-8")
    for case in CASES["cases"]:
        assert case["about"].endswith(".") and case["server"] in ("live", "own", "scripted") and case["steps"]
        assert ("script" in case) == (case["server"] == "scripted")
        for step in case["steps"]:
            assert f"`{step['do']}`" in documented, step["do"]
            assert not {"expect", "error"} <= step.keys()
