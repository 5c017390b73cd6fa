package belay_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"belay.dev/go"
	"belay.dev/go/belaytest"
	"belay.dev/go/belayv1"
)

const name = "namespaces/default/executions/e"

func snapshot(last int, cursor string) string {
	return fmt.Sprintf(`{"cursor": %q, "uid": "u1", "execution": %q, "snapshot": {"name": %q, "uid": "u1", "state": "STATE_RUNNING", "lastSequence": "%d"}}`,
		cursor, name, name, last)
}

func event(sequence int, kind string) string {
	return fmt.Sprintf(`{"cursor": "c%d", "event": {"sequence": "%d", %q: {}}}`, sequence, sequence, kind)
}

const lost = `"end": {"code": "UNAVAILABLE", "message": "gone"}`

func handleOf(t *testing.T, client *belay.Client) *belay.Execution {
	t.Helper()
	return got[*belay.Execution](t)(client.Execution("e"))
}

func TestAServerThatLeavesEventsOutIsRefused(t *testing.T) {
	_, client := script(t, `{"WatchExecution": [{"send": [`+snapshot(0, "c0")+`,`+event(1, "stepStarted")+`,`+event(4, "executionFinished")+`]}]}`)
	_, err := belay.Collect(handleOf(t, client).Events(within(t)))
	var contract *belay.ContractError
	if !errors.As(err, &contract) {
		t.Fatal(err)
	}
	contains(t, refused(t, err, "EVENT_GAP").Message, "4 follows 1")
}

func TestLiveOutputComesOnlyWhenItIsWanted(t *testing.T) {
	output := `{"cursor": "c1", "event": {"ephemeral": true, "stepId": "a", "toolCallOutput": {"text": "hello"}}}`
	_, client := script(t, `{"WatchExecution": [{"send": [`+snapshot(0, "c0")+`,`+event(1, "stepStarted")+`,`+output+`,`+event(2, "executionFinished")+`]}]}`)
	var seen []string
	for event, err := range handleOf(t, client).Events(within(t), belay.WithOutput()) {
		must(t, err)
		seen = append(seen, fmt.Sprintf("%d %s", event.Sequence, event.Text()))
	}
	equal(t, seen, []string{"1 ", "0 hello", "2 "})
	equal(t, len(got[[]*belay.Event](t)(belay.Collect(handleOf(t, client).Events(within(t))))), 2)
}

func TestARefusalAndAPermanentFaultEndTheWatch(t *testing.T) {
	for _, one := range []struct {
		code, reason string
		class        belay.Code
	}{{"NOT_FOUND", "EXECUTION_DELETED", belay.NotFound}, {"UNAVAILABLE", "STORE_GONE", belay.Unavailable}, {"INTERNAL", "EXECUTION_SET_ASIDE", belay.Internal}} {
		t.Run(one.reason, func(t *testing.T) {
			server, client := script(t, fmt.Sprintf(`{"WatchExecution": [{"send": [%s, %s], "end": {"code": %q, "reason": %q}}]}`,
				snapshot(0, "c0"), event(1, "stepStarted"), one.code, one.reason))
			events, err := belay.Collect(handleOf(t, client).Events(within(t)))
			refused(t, err, one.reason)
			equal(t, []any{errors.Is(err, one.class), len(events), len(server.Requests("WatchExecution"))}, []any{true, 0, 1})
		})
	}
	_, client := script(t, `{"WatchExecution": [{`+lost+`}]}`, belay.WithReconnectFor(300*time.Millisecond))
	_, err := belay.Collect(handleOf(t, client).Events(within(t)))
	refused(t, err, "SERVER_UNREACHABLE")
}

func TestAFirstListThatIsInterruptedBeginsAnew(t *testing.T) {
	shown := `{"execution": {"name": "` + name + `", "state": "STATE_RUNNING"}}`
	server, client := script(t, `{"WatchExecutions": [{"send": [`+shown+`], `+lost+`}, {"send": [`+shown+`, {"cursor": "c1", "listed": {}}], `+lost+`},
		{"send": [{"cursor": "c2", "removed": {"name": "`+name+`", "deleted": true}}, {"cursor": "c3", "listed": {}}], "end": "silence"}]}`)
	var kinds []string
	for update, err := range client.WatchExecutions(within(t), "") {
		must(t, err)
		kinds = append(kinds, update.Kind+update.ResetReason)
		if update.Removed != nil {
			equal(t, *update.Removed, belay.Removed{Name: name, Deleted: true})
		}
		if update.Cursor == "c3" {
			break
		}
	}
	equal(t, kinds, []string{"changed", "resetINTERRUPTED", "changed", "listed", "removed", "listed"})
	var cursors []string
	for _, request := range server.Requests("WatchExecutions") {
		cursors = append(cursors, request.Message.(*belayv1.WatchExecutionsRequest).Cursor)
	}
	equal(t, cursors, []string{"", "", "c1"})
}

func TestTheEndOfALoopClosesItsStream(t *testing.T) {
	_, client := script(t, `{"WatchExecution": [{"send": [`+snapshot(0, "c0")+`,`+event(1, "stepStarted")+`], "end": "silence"}]}`)
	events := handleOf(t, client).Events(within(t))
	for range 2 {
		// Each range loop is a watch of its own, from the beginning.
		equal(t, first(t, events, func(*belay.Event) bool { return true }).Sequence, int64(1))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var last error
	for event, err := range handleOf(t, client).Events(ctx) {
		if event != nil {
			cancel()
		}
		last = err
	}
	if !errors.Is(last, context.Canceled) {
		t.Fatal(last)
	}
	deadline, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := belay.Collect(handleOf(t, client).Events(deadline))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
}

func TestAClosedClientEndsItsStreams(t *testing.T) {
	_, client := script(t, `{"WatchExecution": [{"send": [`+snapshot(0, "c0")+`,`+event(1, "stepStarted")+`], "end": "silence"}]}`)
	next, stop := iter.Pull2(handleOf(t, client).Events(within(t)))
	defer stop()
	if _, err, _ := next(); err != nil {
		t.Fatal(err)
	}
	must(t, client.Close())
	_, err, _ := next()
	contains(t, err.Error(), "closed")
	must(t, client.Close())
}

func TestAServerThatIsSilentIsLeft(t *testing.T) {
	server := belaytest.Start(t)
	client := server.Client(t, belay.WithHeartbeat(100*time.Millisecond), belay.WithReconnectFor(500*time.Millisecond), belay.WithTimeout(2*time.Second))
	execution := start(t, client, waiting)
	cursor := ""
	for event, err := range execution.Events(within(t)) {
		if err != nil {
			refused(t, err, "SERVER_UNREACHABLE")
			break
		}
		if cursor == "" {
			must(t, server.Signal(syscall.SIGSTOP))
		}
		cursor = event.Cursor
	}
	must(t, server.Signal(syscall.SIGCONT))
	awake := server.Client(t)
	handle := got[*belay.Execution](t)(awake.Execution(execution.Name()))
	got[*belay.ExecutionInfo](t)(handle.Signal(within(t), "go", nil))
	rest := got[[]*belay.Event](t)(belay.Collect(handle.Events(within(t), belay.After(cursor))))
	if rest[0].Sequence < 2 || rest[len(rest)-1].Kind != "execution_finished" {
		t.Fatal(rest[0], rest[len(rest)-1])
	}
}

func TestExecutionsAreWatchedOverARestart(t *testing.T) {
	server := belaytest.Start(t)
	client := server.Client(t)
	ctx := within(t)
	var execution *belay.Execution
	for update, err := range client.WatchExecutions(ctx, `labels.w = "yes"`) {
		must(t, err)
		switch {
		case update.Kind == "listed" && execution == nil:
			execution = start(t, client, waiting, belay.Labels(map[string]string{"w": "yes"}))
			must(t, server.Restart())
			got[*belay.ExecutionInfo](t)(execution.Signal(ctx, "go", nil))
		case update.Execution != nil && update.Execution.Ended():
			must(t, execution.Delete(ctx))
		}
		if update.Removed != nil {
			equal(t, *update.Removed, belay.Removed{Name: execution.Name(), Deleted: true})
			break
		}
	}
}

func TestAServerThatIsKilledAgainAndAgain(t *testing.T) {
	server := belaytest.Start(t)
	client := server.Client(t)
	ctx := within(t)
	source := rand.New(rand.NewPCG(1, 2))
	execution := start(t, client, chain(120, 4))
	var events []*belay.Event
	kills, readers := 0, 0
	for len(events) == 0 || events[len(events)-1].Kind != "execution_finished" {
		readers++
		cursor := ""
		if len(events) > 0 {
			cursor = events[len(events)-1].Cursor
		}
		for event, err := range execution.Events(ctx, belay.After(cursor)) {
			must(t, err)
			events = append(events, event)
			if kills < 4 && len(events) > 60*(kills+1) {
				kills++
				must(t, server.Restart())
			}
			// A new reader with the cursor of the old one, as another process would.
			if source.Float64() < 0.02 {
				break
			}
		}
	}
	ids(t, events)
	completed := 0
	for _, event := range events {
		if event.Kind == "step_completed" {
			completed++
		}
	}
	if kills < 3 || readers < 2 || completed != 120 {
		t.Fatal(kills, readers, completed)
	}
}

// The server knows the deadline of a call, and may end it before the client's own clock does.
func TestAWaitThatTheServerEndsAtTheDeadline(t *testing.T) {
	_, client := script(t, `{"WaitExecution": [{"end": {"code": "DEADLINE_EXCEEDED", "message": "too late"}}]}`)
	_, err := handleOf(t, client).Wait(within(t))
	var late *belay.WaitTimeoutError
	if !errors.As(err, &late) {
		t.Fatal(err)
	}
	// Without a deadline of the caller's it is the call's.
	_, err = handleOf(t, client).Wait(context.Background())
	refused(t, err, "DEADLINE_EXCEEDED")
}
