package belay_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"belay.dev/go"
	"belay.dev/go/belaytest"
	"belay.dev/go/internal/scripted"
)

// shared is a server for all tests that neither kill it nor count what it has.
var shared *belaytest.Server

func TestMain(m *testing.M) {
	for _, one := range os.Environ() {
		// What connect would read of the user's.
		if name, _, _ := strings.Cut(one, "="); strings.HasPrefix(name, "BELAY_") && name != "BELAY_PROGRAM" {
			_ = os.Unsetenv(name)
		}
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	server, err := belaytest.New()
	if errors.Is(err, belaytest.ErrNoProgram) && os.Getenv("CI") != "true" {
		return m.Run()
	}
	if err == nil {
		defer server.Close()
		err = server.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	shared = server
	return m.Run()
}

// live returns the shared server and a client of it.
func live(t *testing.T) (*belaytest.Server, *belay.Client) {
	t.Helper()
	if shared == nil {
		t.Skip(belaytest.ErrNoProgram)
	}
	return shared, shared.Client(t)
}

// script starts a scripted server, whose script is JSON, and returns it with a client of it.
func script(t *testing.T, text string, options ...belay.ConnectOption) (*scripted.Server, *belay.Client) {
	t.Helper()
	var answers scripted.Script
	must(t, json.Unmarshal([]byte(text), &answers))
	server, err := scripted.Start(answers)
	must(t, err)
	t.Cleanup(server.Close)
	return server, connect(t, append([]belay.ConnectOption{belay.WithURL(server.URL)}, options...)...)
}

func connect(t *testing.T, options ...belay.ConnectOption) *belay.Client {
	t.Helper()
	client, err := belay.Connect(t.Context(), options...)
	must(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// within returns a context that bounds a wait of the test.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func got[T any](t *testing.T) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		must(t, err)
		return value
	}
}

func equal(t *testing.T, found, wanted any) {
	t.Helper()
	if !reflect.DeepEqual(found, wanted) {
		t.Fatalf("%#v instead of %#v", found, wanted)
	}
}

func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Fatalf("%q is not in:\n%s", part, text)
		}
	}
}

// refused returns the error of this package, which has to have the reason.
func refused(t *testing.T, err error, reason string) *belay.Error {
	t.Helper()
	var found *belay.Error
	if !errors.As(err, &found) || found.Reason != reason {
		t.Fatalf("the error is %v, and the reason %s was expected", err, reason)
	}
	return found
}

// first returns the first entry that fits.
func first[T any](t *testing.T, entries iter.Seq2[T, error], fits func(T) bool) T {
	t.Helper()
	for entry, err := range entries {
		must(t, err)
		if fits(entry) {
			return entry
		}
	}
	t.Fatal("the entries ended before one that fits")
	panic("unreachable")
}

// pending returns the first approval of an execution that waits for a person.
func pending(t *testing.T, client *belay.Client, execution *belay.Execution) *belay.Approval {
	t.Helper()
	updates := client.Approvals().Watch(within(t), belay.OfExecution(execution.Name()))
	return first(t, updates, func(update *belay.ApprovalUpdate) bool { return update.Approval != nil && update.Approval.IsPending() }).Approval
}

func repository(t *testing.T) string {
	t.Helper()
	return got[string](t)(filepath.Abs("../.."))
}

func read(t *testing.T, path ...string) string {
	t.Helper()
	return string(got[[]byte](t)(os.ReadFile(filepath.Join(path...))))
}

func write(t *testing.T, text string, path ...string) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(path...), []byte(text), 0o600))
}

type object = map[string]any

// noop is a plan of one step that returns a value.
func noop(output any) object {
	return object{"id": "one", "outputs": object{"value": "${say.result}"}, "steps": []object{{"id": "say", "tool": "noop", "arguments": object{"output": output}}}}
}

// chain is a plan of so many steps.
func chain(count, sleepMs int) object {
	var steps []object
	for n := range count {
		steps = append(steps, object{"id": fmt.Sprintf("s%d", n), "tool": "noop", "arguments": object{"output": n, "sleep_ms": sleepMs}})
	}
	return object{"id": "chain", "steps": steps}
}

var (
	waiting = object{"id": "waiting", "outputs": object{"got": "${wait.result}"}, "steps": []object{{"id": "wait", "wait": object{"signal": "go"}}}}
	// A deletion needs an approval under the built-in policy.
	deletion = object{"id": "deletion", "steps": []object{
		{"id": "write", "tool": "write_file", "arguments": object{"path": "old.txt", "content": "one\ntwo\n"}},
		{"id": "remove", "title": "Remove the old file", "tool": "delete_file", "depends_on": []string{"write"}, "arguments": object{"path": "old.txt"}},
	}}
	form = object{"id": "form", "outputs": object{"version": "${ask.result.version}"}, "steps": []object{{"id": "ask", "wait": object{"form": object{
		"title": "Which version?", "description": "The next one.",
		"schema": object{"type": "object", "required": []string{"version"}, "properties": object{"version": object{"type": "integer"}}},
	}}}}}
)
