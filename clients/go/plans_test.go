package belay_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"belay.dev/go"
	"belay.dev/go/belayv1"
	_ "belay.dev/go/belayyaml"
)

func document(t *testing.T, plan any) *belayv1.PlanDocument {
	t.Helper()
	return got[*belayv1.PlanDocument](t)(belay.ToDocument(plan))
}

func TestTheBuilderMakesDataThatTheServerAccepts(t *testing.T) {
	_, client := live(t)
	plan := belay.NewPlan("built", belay.Fields{"parallelism": 2})
	who := plan.Input("who", belay.Fields{"default": "日本", "schema": belay.Fields{"type": "string"}})
	fetch := plan.Step("fetch", belay.Fields{"tool": "noop", "arguments": belay.Fields{"output": belay.Fields{
		"n": []any{belay.Fields{"a key": int64(1<<53 + 1)}}, "text": belay.Literal("${not} a <reference>"),
	}}})
	use := plan.Step("use", belay.Fields{"tool": "noop", "arguments": belay.Fields{
		"output": fmt.Sprintf("%s: %s", who, fetch.Result().Field("n").Index(0).Field("a key")),
	}})
	plan.Step("last", belay.Fields{"tool": "noop", "depends_on": []any{use, "fetch"}, "condition": fmt.Sprintf("%s == 'completed'", fetch.State()),
		"arguments": belay.Fields{"output": fetch.Result().Field("n").Index(0)}})
	plan.Output("text", use.Result())
	plan.Output("literal", fetch.Result().Field("text"))
	var sent struct {
		Steps []struct {
			DependsOn []string `json:"depends_on"`
			Arguments struct{ Output any }
		}
	}
	must(t, json.Unmarshal([]byte(document(t, plan).Text), &sent))
	equal(t, sent.Steps[2].DependsOn, []string{"use", "fetch"})
	equal(t, sent.Steps[2].Arguments.Output, "${fetch.result.n[0]}")
	var result struct{ Text, Literal string }
	must(t, start(t, client, plan, belay.Inputs(object{"who": "x"})).Result(within(t), &result))
	equal(t, []string{result.Text, result.Literal}, []string{"x: 9007199254740993", "${not} a <reference>"})
}

func TestAYAMLFileIsSentAsItIsWritten(t *testing.T) {
	_, client := live(t)
	path := filepath.Join(t.TempDir(), "plan.yaml")
	write(t, "# a comment\nid: file\noutputs: {on: '${a.result}'}\nsteps:\n  - {id: a, tool: noop, arguments: {output: on}}\n", path)
	equal(t, document(t, path).Text, read(t, path))
	var result struct{ On string }
	must(t, start(t, client, path).Result(within(t), &result))
	equal(t, result.On, "on")
	write(t, "id: file\nsteps:\n  - {id: a, tol: noop}\n", path)
	_, err := client.Start(within(t), path)
	contains(t, err.Error(), "line 3")
}

func TestStepsNamePlansInFiles(t *testing.T) {
	_, client := live(t)
	folder := t.TempDir()
	must(t, os.Mkdir(filepath.Join(folder, "parts"), 0o700))
	write(t, "id: outer\noutputs: {inner: '${a.result.out}'}\nsteps:\n  - id: group\n    steps:\n      - {id: a, plan: parts/inner.yaml, inputs: {n: 0x10}}\n", folder, "plan.yaml")
	write(t, "id: inner\ninputs: {n: {}}\noutputs: {out: '${deep.result.out}'}\nsteps:\n  - {id: deep, plan: deep.json, inputs: {n: '${inputs.n}'}}\n"+
		"  - {id: later, tool: noop, depends_on: [{step: deep, on: [success]}], arguments: {output: yes}}\n", folder, "parts/inner.yaml")
	write(t, `{"id": "deep", "inputs": {"n": {}}, "outputs": {"out": "${x.result}"}, "steps": [{"id": "x", "tool": "noop", "arguments": {"output": "${inputs.n}"}}]}`,
		folder, "parts/deep.json")
	sent := document(t, filepath.Join(folder, "plan.yaml"))
	equal(t, sent.Format, belayv1.PlanFormat_PLAN_FORMAT_JSON)
	// YAML 1.2: `on` is a name and `yes` a text.
	contains(t, sent.Text, `"n":16`, `"on":["success"]`, `"output":"yes"`, `"id":"deep"`)
	var result struct{ Inner int }
	must(t, start(t, client, filepath.Join(folder, "plan.yaml")).Result(within(t), &result))
	equal(t, result.Inner, 16)
}

func TestFilesThatCannotBeNamed(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "plan.yaml")
	for name, part := range map[string]string{"../out.yaml": "folder", "/etc/plan.yaml": "folder", "plan.yaml": "itself", "none.yaml": "cannot be read"} {
		write(t, "id: outer\nsteps:\n  - {id: a, plan: "+name+"}\n", path)
		_, err := belay.ToDocument(path)
		contains(t, err.Error(), part)
	}
	for depth := range 6 {
		write(t, fmt.Sprintf("id: p\nsteps:\n  - {id: a, plan: p%d.yaml}\n", depth+1), folder, fmt.Sprintf("p%d.yaml", depth))
	}
	write(t, "id: p\nsteps: []\n", folder, "p6.yaml")
	_, err := belay.ToDocument(filepath.Join(folder, "p0.yaml"))
	contains(t, err.Error(), "5 deep")
	must(t, os.Symlink("/etc/hostname", filepath.Join(folder, "link.yaml")))
	write(t, "id: outer\nsteps:\n  - {id: a, plan: link.yaml}\n", path)
	_, err = belay.ToDocument(path)
	refused(t, err, "PLAN_REFUSED")
	// What is no YAML is sent: the server says where.
	write(t, "id: x\nsteps: [{plan: a.yaml\n", path)
	equal(t, document(t, path).Format, belayv1.PlanFormat_PLAN_FORMAT_YAML)
}

func TestPlansThatAreNoText(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plan.yaml")
	write(t, "\xff\xfe\x00", path)
	_, err := belay.ToDocument(path)
	refused(t, err, "PLAN_UNREADABLE")
	_, err = belay.ToDocument(object{"id": "x", "description": strings.Repeat("x", 5<<20)})
	contains(t, refused(t, err, "PLAN_TOO_LARGE").Message, "4194304")
}
