package belay_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"belay.dev/go"
	"belay.dev/go/belayv1"
)

func TestAnErrorHasItsClass(t *testing.T) {
	_, client := script(t, `{"GetExecution": [{"end": {"code": "RESOURCE_EXHAUSTED", "message": "it is so", "reason": "LIMIT_REACHED", "metadata": {"limit": "3"},
		"retry_after": 60.5, "violations": [{"field": "steps[0].tool", "description": "is required"}, {"field": "", "description": "is odd"}]}}]}`)
	_, err := handleOf(t, client).Get(within(t))
	err = fmt.Errorf("wrapped: %w", err)
	found := refused(t, err, "LIMIT_REACHED")
	equal(t, []any{found.Code, found.Message, found.RetryAfter, found.Metadata}, []any{belay.ResourceExhausted, "it is so", 60500 * time.Millisecond, map[string]string{"limit": "3"}})
	contains(t, err.Error(), "it is so (LIMIT_REACHED: docs/errors.md#limit_reached)\n  steps[0].tool: is required\n  is odd")
	if !errors.Is(err, belay.ResourceExhausted) || errors.Is(err, belay.NotFound) || errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
}

func TestReadsAreRepeatedAndChangesOnlyWithAKey(t *testing.T) {
	answer := `{"send": [{"name": "` + name + `"}]}`
	server, client := script(t, `{
		"GetExecution": [{`+lost+`}, {"end": {"code": "RESOURCE_EXHAUSTED", "reason": "LIMIT_REACHED", "retry_after": 0.05}}, `+answer+`],
		"StartExecution": [{`+lost+`}, {`+lost+`}, `+answer+`], "ValidatePlan": [{`+lost+`}, {"send": [{}]}],
		"PauseExecution": [{"end": {"code": "UNAVAILABLE", "reason": "STORE_GONE"}}],
		"CancelExecution": [{"end": {"code": "RESOURCE_EXHAUSTED", "reason": "TOO_MANY"}}]}`)
	ctx := within(t)
	got[*belay.ExecutionInfo](t)(handleOf(t, client).Get(ctx))
	start(t, client, noop(1))
	keys := map[string]bool{}
	for _, request := range server.Requests("StartExecution") {
		keys[request.Message.(*belayv1.StartExecutionRequest).GetRequestId()] = true
	}
	equal(t, []any{len(server.Requests("StartExecution")), len(keys), keys[""]}, []any{3, 1, false})
	_, err := client.Validate(ctx, noop(1))
	refused(t, err, "SERVER_UNREACHABLE")
	_, err = handleOf(t, client).Cancel(ctx, "")
	refused(t, err, "TOO_MANY")
	_, err = handleOf(t, client).Pause(ctx, "")
	refused(t, err, "STORE_GONE")
	for _, method := range []string{"ValidatePlan", "CancelExecution", "PauseExecution"} {
		equal(t, len(server.Requests(method)), 1)
	}
}

func TestACallHasADeadline(t *testing.T) {
	_, client := script(t, `{"GetExecution": [{"end": "silence"}]}`, belay.WithTimeout(300*time.Millisecond))
	_, err := handleOf(t, client).Get(within(t))
	refused(t, err, "DEADLINE_EXCEEDED")
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, belay.DeadlineExceeded) {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = handleOf(t, client).Get(ctx)
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

func TestWhatTheServerRefusesNamesTheField(t *testing.T) {
	_, client := live(t)
	ctx := within(t)
	for _, one := range []struct {
		plan   any
		option belay.StartOption
		field  string
	}{
		{noop(1), belay.ID("Not An Id"), "execution_id"},
		{noop(1), belay.Key(""), "request_id"},
		{noop(json.Number("18446744073709551616")), belay.Labels(nil), "steps[0].arguments.output"},
	} {
		_, err := client.Start(ctx, one.plan, one.option)
		if !errors.Is(err, belay.InvalidArgument) {
			t.Fatal(err)
		}
		contains(t, asBelay(t, err).Fields[0].Field, one.field)
	}
}

func asBelay(t *testing.T, err error) *belay.Error {
	t.Helper()
	var found *belay.Error
	if !errors.As(err, &found) {
		t.Fatalf("%v is no error of the client", err)
	}
	return found
}

func TestWhatCannotBeSentIsRefusedHere(t *testing.T) {
	client := connect(t, belay.WithURL("unix:/nowhere"))
	ctx := within(t)
	e := handleOf(t, client)
	begin := func(plan any, options ...belay.StartOption) error {
		_, err := client.Start(ctx, plan, options...)
		return err
	}
	for _, one := range []struct {
		name, field string
		err         error
	}{
		{"a channel", "plan", begin(object{"id": "x", "steps": []any{make(chan int)}})},
		{"not a number", "plan", begin(noop(math.NaN()))},
		{"too large", "plan", begin(noop(strings.Repeat("x", 5<<20)))},
		{"a text", "plan", begin("id: x\nsteps: []")},
		{"bytes", "plan", begin([]byte("{}"))},
		{"a number", "plan", begin(7)},
		{"nothing", "plan", begin(nil)},
		{"no file", "plan", begin("no-such-file.yaml")},
		{"a list", "inputs", begin(noop(1), belay.Inputs([]int{1}))},
		{"bytes in inputs", "inputs", begin(noop(1), belay.Inputs(json.RawMessage("{\"a\": \"\xff\"}")))},
		{"a mode", "approval_mode", begin(noop(1), belay.ApprovalMode("MAYBE"))},
		{"a time", "step_timeout", begin(noop(1), belay.StepTimeout(-time.Second))},
		{"a payload", "payload", second(e.Signal(ctx, "go", func() {}))},
		{"a step", "step", second(e.Step(ctx, "a/b"))},
		{"a resolution", "resolution", second(e.Resolve(ctx, "a", "MAYBE"))},
		{"a change", "change", second(e.RetryStep(ctx, "a", "LATER"))},
		{"a blob", "blob", second(e.ReadBlob(ctx, &belay.Blob{Digest: "short"}))},
		{"an artifact", "artifact", second(e.ReadArtifact(ctx, ""))},
		{"a kind", "kind", second(belay.Collect(e.Artifacts(ctx, belay.OfKind("PICTURE"))))},
		{"an execution", "execution", second(client.Execution("a/b"))},
		{"no execution", "execution", second(client.Execution(""))},
		{"an execution of approvals", "execution", second(belay.Collect(client.Approvals().Watch(ctx, belay.OfExecution("a/b"))))},
		{"an approval", "approval", second(client.Approvals().Get(ctx, "a/b"))},
	} {
		t.Run(one.name, func(t *testing.T) {
			var usage *belay.UsageError
			if !errors.As(one.err, &usage) || usage.Fields[0].Field != one.field {
				t.Fatal(one.err)
			}
		})
	}
	var usage *belay.UsageError
	if _, err := e.Cancel(ctx, "\xff"); !errors.As(err, &usage) {
		t.Fatal(err)
	}
	refused(t, begin(noop(1), belay.Inputs(object{"x": strings.Repeat("x", 20_000_000)})), "MESSAGE_TOO_LARGE")
}

func second[T any](_ T, err error) error { return err }

func TestReasonsAreExplained(t *testing.T) {
	text := read(t, repository(t), "docs/errors.md")
	for _, reason := range []string{
		"INVALID_USAGE", "SERVER_UNREACHABLE", "WAIT_TIMEOUT", "EXECUTION_FAILED", "EXECUTION_CANCELLED", "EXECUTION_TIMED_OUT", "PLAN_UNREADABLE",
	} {
		contains(t, text, "### "+reason+"\n")
	}
	// A client that repeats what no repetition helps waits for nothing.
	permanent := map[string]bool{}
	heading := regexp.MustCompile(`(?m)^### (\w+)$`)
	places := heading.FindAllStringSubmatchIndex(text, -1)
	for index, place := range places {
		end := len(text)
		if index+1 < len(places) {
			end = places[index+1][0]
		}
		if regexp.MustCompile(`gRPC [\w ]*UNAVAILABLE[\w ]* · not retryable`).MatchString(text[place[0]:end]) {
			permanent[text[place[2]:place[3]]] = true
		}
	}
	equal(t, permanent, belay.Permanent)
}

// The details of some refusals stand in headers that do not end the answer, as of a server or a proxy that sends an empty frame after them.
func TestARefusalInHeadersThatDoNotEndTheAnswer(t *testing.T) {
	details := got[[]byte](t)(proto.Marshal(&spb.Status{Code: 5, Message: "gone 日", Details: []*anypb.Any{
		got[*anypb.Any](t)(anypb.New(&errdetails.ErrorInfo{Reason: "EXECUTION_NOT_FOUND", Domain: "belay.dev"})),
	}}))
	listener := got[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Grpc-Status", "5")
		w.Header().Set("Grpc-Message", "gone")
		w.Header().Set("Grpc-Status-Details-Bin", base64.RawStdEncoding.EncodeToString(details))
		w.(http.Flusher).Flush()
	}), Protocols: new(http.Protocols)}
	server.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	client := connect(t, belay.WithURL("http://"+listener.Addr().String()), belay.WithRetryFor(0))
	_, err := handleOf(t, client).Get(within(t))
	found := refused(t, err, "EXECUTION_NOT_FOUND")
	equal(t, []any{found.Code, found.Message}, []any{belay.NotFound, "gone 日"})
	_, err = belay.Collect(handleOf(t, client).Events(within(t)))
	refused(t, err, "EXECUTION_NOT_FOUND")
}
