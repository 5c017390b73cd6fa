"""Plans: data, files, and the builder."""

import json

import pytest

import belay
from belay.plans import to_document


def test_the_builder_makes_data_that_the_server_accepts(belay_client):
    plan = belay.Plan("built", parallelism=2)
    who = plan.input("who", default="日本", schema={"type": "string"})
    fetch = plan.step("fetch", tool="noop", arguments={"output": {"n": [{"a key": 2**53 + 1}], "text": belay.literal("${not} a reference")}})
    use = plan.step("use", tool="noop", arguments={"output": f"{who}: {fetch.result.n[0]['a key']}"})
    plan.step("last", tool="noop", depends_on=[use, "fetch"], condition=f"{fetch.state} == 'completed'", arguments={"output": fetch.result["n"][0]})
    plan.output("text", use.result)
    plan.output("literal", fetch.result.text)
    document = plan.to_dict()
    assert document["steps"][2]["depends_on"] == ["use", "fetch"]
    assert document["steps"][2]["arguments"] == {"output": "${fetch.result.n[0]}"}
    execution = belay_client.start(plan, inputs={"who": "x"})
    assert execution.result(30) == {"text": f"x: {2**53 + 1}", "literal": "${not} a reference"}
    assert belay_client.validate(plan) == []
    with pytest.raises(TypeError, match="for_each"):
        list(fetch.result)


def test_a_yaml_file_is_sent_as_it_is_written(belay_client, tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text("# a comment\nid: file\noutputs: {on: '${a.result}'}\nsteps:\n  - {id: a, tool: noop, arguments: {output: on}}\n", "utf-8")
    assert to_document(path).text == path.read_text("utf-8")
    assert belay_client.start(path).result(30) == {"on": "on"}
    path.write_text("id: file\nsteps:\n  - {id: a, tol: noop}\n", "utf-8")
    with pytest.raises(belay.InvalidArgumentError, match="line 3"):
        belay_client.start(str(path))


def test_steps_name_plans_in_files(belay_client, tmp_path):
    (tmp_path / "parts").mkdir()
    (tmp_path / "plan.yaml").write_text(
        "id: outer\noutputs: {inner: '${a.result.out}'}\nsteps:\n  - id: group\n    steps:\n      - {id: a, plan: parts/inner.yaml, inputs: {n: 0x10}}\n", "utf-8"
    )
    (tmp_path / "parts/inner.yaml").write_text(
        "id: inner\ninputs: {n: {}}\noutputs: {out: '${deep.result.out}'}\nsteps:\n  - {id: deep, plan: deep.json, inputs: {n: '${inputs.n}'}}\n"
        "  - {id: later, tool: noop, depends_on: [{step: deep, on: [success]}], arguments: {output: yes}}\n",
        "utf-8",
    )
    deep = {"id": "deep", "inputs": {"n": {}}, "outputs": {"out": "${x.result}"}, "steps": [{"id": "x", "tool": "noop", "arguments": {"output": "${inputs.n}"}}]}
    (tmp_path / "parts/deep.json").write_text(json.dumps(deep), "utf-8")
    sent = json.loads(to_document(tmp_path / "plan.yaml").text)
    inner = sent["steps"][0]["steps"][0]
    assert inner["inputs"] == {"n": 16} and inner["plan"]["steps"][0]["plan"] == deep
    # YAML 1.2: `on` is a name and `yes` a text.
    assert inner["plan"]["steps"][1]["depends_on"] == [{"step": "deep", "on": ["success"]}]
    assert inner["plan"]["steps"][1]["arguments"] == {"output": "yes"}
    assert belay_client.start(tmp_path / "plan.yaml").result(60) == {"inner": 16}


@pytest.mark.parametrize("name, part", [("../out.yaml", "folder"), ("/etc/plan.yaml", "folder"), ("plan.yaml", "itself"), ("none.yaml", "cannot be read")])
def test_files_that_cannot_be_named(tmp_path, name, part):
    (tmp_path / "plan.yaml").write_text(f"id: outer\nsteps:\n  - {{id: a, plan: {name}}}\n", "utf-8")
    with pytest.raises(belay.UsageError, match=part):
        to_document(tmp_path / "plan.yaml")


def test_a_plan_that_is_too_large_names_what_to_do():
    with pytest.raises(belay.UsageError, match="4194304") as caught:
        to_document({"id": "x", "description": "x" * (5 << 20), "steps": []})
    assert caught.value.reason == "PLAN_TOO_LARGE"


def test_a_file_that_is_no_text(tmp_path):
    (tmp_path / "plan.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(belay.UsageError, match="cannot be read") as caught:
        to_document(tmp_path / "plan.yaml")
    assert caught.value.reason == "PLAN_UNREADABLE"
