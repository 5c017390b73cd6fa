package belay_test

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"belay.dev/go"
	"belay.dev/go/belaytest"
)

// build builds an example and returns the path of the program.
func build(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	output, err := exec.CommandContext(within(t), "go", "build", "-o", path, "./examples/"+name).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	return path
}

// example is one that runs beside the test.
type example struct {
	command *exec.Cmd
	output  *bufio.Scanner
	lines   []string
}

// begin starts an example and returns once it watches.
func begin(t *testing.T, environment []string, path string, arguments ...string) *example {
	t.Helper()
	command := exec.CommandContext(within(t), path, arguments...)
	command.Env = environment
	command.Stderr = os.Stderr
	pipe, err := command.StdoutPipe()
	must(t, err)
	must(t, command.Start())
	e := &example{command: command, output: bufio.NewScanner(pipe)}
	for e.output.Scan() {
		e.lines = append(e.lines, e.output.Text())
		if e.output.Text() == "watching" {
			return e
		}
	}
	t.Fatal(command.Wait(), e.lines)
	return nil
}

// rest returns what it prints until it ends.
func (e *example) rest(t *testing.T) string {
	t.Helper()
	for e.output.Scan() {
		e.lines = append(e.lines, e.output.Text())
	}
	must(t, e.command.Wait())
	return strings.Join(e.lines, "\n")
}

func TestThePlannerEditsItsPlanAndReturnsToItsExecution(t *testing.T) {
	server := belaytest.Start(t)
	planner, workspace := build(t, "planner"), filepath.Join(filepath.Dir(server.StateDir()), "work")
	must(t, os.Mkdir(workspace, 0o700))
	run := func(arguments ...string) string {
		command := exec.CommandContext(within(t), planner, append(arguments, "--workspace", workspace)...)
		command.Env = server.Environment()
		output, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, output)
		}
		return string(output)
	}
	done := run("--key", "monday")
	contains(t, done, "read failed", "the plan is edited", "settings: {}")
	equal(t, read(t, workspace, "settings.json"), "{}\n")
	again := run("--key", "monday")
	equal(t, strings.SplitN(again, "\n", 2)[0], strings.SplitN(done, "\n", 2)[0])
	write(t, `{"a": 1}`, workspace, "settings.json")
	other := run()
	contains(t, other, `settings: {"a": 1}`)
	equal(t, strings.Contains(other, "edited"), false)
}

// work is a plan that writes a file, waits for the verifier, and may delete one.
func work(path, remove string) object {
	steps := []object{
		{"id": "write", "tool": "write_file", "arguments": object{"path": path, "content": "x"}},
		{"id": "verified", "depends_on": []string{"write"}, "wait": object{"signal": "verified"}},
	}
	if remove != "" {
		steps = append(steps, object{"id": "remove", "tool": "delete_file", "depends_on": []string{"verified"}, "arguments": object{"path": remove}})
	}
	return object{"id": "work", "outputs": object{"verdict": "${verified.result}"}, "steps": steps}
}

func TestTheVerifierSignalsAndDenies(t *testing.T) {
	server := belaytest.Start(t)
	client := server.Client(t)
	ctx := within(t)
	verifier := begin(t, server.Environment(), build(t, "verifier"), "--count", "3")
	labelled := belay.Labels(map[string]string{"verify": "yes"})
	var result struct {
		Verdict struct {
			Accepted bool
			Problems []string
		}
	}
	good := start(t, client, work("out/a.txt", ""), labelled)
	must(t, good.Result(ctx, &result))
	equal(t, []any{result.Verdict.Accepted, len(result.Verdict.Problems)}, []any{true, 0})
	must(t, start(t, client, work("src/a.txt", ""), labelled).Result(ctx, &result))
	equal(t, result.Verdict.Accepted, false)
	equal(t, result.Verdict.Problems, []string{"src was created outside of out/", "src/a.txt was created outside of out/"})
	other := start(t, client, deletion)
	pending(t, client, other)
	denied := start(t, client, work("src/b.txt", "src/b.txt"), labelled)
	equal(t, got[*belay.ExecutionInfo](t)(denied.Wait(ctx)).State, "PARTIAL")
	contains(t, got[*belay.StepInfo](t)(denied.Step(ctx, "remove")).Failure.Message, "only files below out/ may change")
	// One without the label is not the verifier's.
	equal(t, len(got[[]*belay.Approval](t)(other.Approvals(ctx))), 1)
	contains(t, verifier.rest(t), good.ID()+": accepted", denied.ID()+": denied")
}

func TestTheApproverDecidesByItsRuleAndLeavesTheRest(t *testing.T) {
	server := belaytest.Start(t)
	client := server.Client(t)
	ctx := within(t)
	token := got[string](t)(server.AddPrincipal(ctx, "bot", "approver"))
	left := start(t, client, deletion)
	pending(t, client, left)
	environment := append(slices.Clone(server.Environment()), "BELAY_SERVER="+server.HTTPURL(), "BELAY_TOKEN="+token)
	approver := begin(t, environment, build(t, "approver"), "--allow", "build/*", "--count", "3")
	built := start(t, client, object{"id": "clean", "steps": []object{
		{"id": "write", "tool": "write_file", "arguments": object{"path": "build/a.o", "content": "x"}},
		{"id": "clean", "tool": "delete_file", "depends_on": []string{"write"}, "arguments": object{"path": "build/a.o"}},
	}})
	equal(t, got[*belay.ExecutionInfo](t)(built.Wait(ctx)).Succeeded(), true)
	asked := start(t, client, form)
	printed := approver.rest(t)
	contains(t, printed, "all of them in build/*", "left to people")
	decided := got[[]*belay.Approval](t)(built.Approvals(ctx, "APPROVED", "CONSUMED"))
	equal(t, decided[0].DecidedBy, "person:bot")
	for _, one := range []*belay.Execution{left, asked} {
		equal(t, len(got[[]*belay.Approval](t)(one.Approvals(ctx))), 1)
	}
}

func TestTheExamplesSayHowTheyAreUsed(t *testing.T) {
	for name, flag := range map[string]string{"planner": "-workspace", "verifier": "-below", "approver": "-allow"} {
		path := build(t, name)
		output, err := exec.CommandContext(within(t), path, "--help").CombinedOutput()
		must(t, err)
		contains(t, string(output), flag)
	}
	var failed *exec.ExitError
	if err := exec.CommandContext(within(t), build(t, "approver")).Run(); !errors.As(err, &failed) || failed.ExitCode() != 2 {
		t.Fatal(err)
	}
}
