package belay_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"belay.dev/go"
	"belay.dev/go/belayv1"
)

func start(t *testing.T, client *belay.Client, plan any, options ...belay.StartOption) *belay.Execution {
	t.Helper()
	return got[*belay.Execution](t)(client.Start(within(t), plan, options...))
}

func ids(t *testing.T, events []*belay.Event) []string {
	t.Helper()
	var found []string
	for index, event := range events {
		if event.Sequence != int64(index)+1 {
			t.Fatalf("the event %d has the sequence %d", index, event.Sequence)
		}
		found = append(found, event.ID())
	}
	return found
}

func TestAnExecutionIsStartedFollowedAndRead(t *testing.T) {
	_, client := live(t)
	ctx := within(t)
	execution := start(t, client, chain(3, 0), belay.Labels(map[string]string{"team 日": "a\u202e"}))
	events := got[[]*belay.Event](t)(belay.Collect(execution.Events(ctx)))
	ids(t, events)
	if events[0].Kind != "execution_created" || events[len(events)-1].Kind != "execution_finished" || events[0].Execution != execution.Name() {
		t.Fatal(events[0], events[len(events)-1])
	}
	info := got[*belay.ExecutionInfo](t)(execution.Wait(ctx))
	if !info.Succeeded() || !info.Ended() || info.Totals.Completed != 3 || info.CreateTime.After(info.EndTime) || time.Since(info.EndTime) > time.Minute {
		t.Fatalf("%+v", info)
	}
	equal(t, info.Labels, map[string]string{"team 日": "a\u202e"})
	var outputs []string
	for step, err := range execution.Steps(ctx, belay.Full(), belay.PageSize(2)) {
		must(t, err)
		outputs = append(outputs, step.ID+" "+step.State+" "+step.Output.JSON())
	}
	equal(t, outputs, []string{"s0 COMPLETED 0", "s1 COMPLETED 1", "s2 COMPLETED 2"})
	for step, err := range execution.Steps(ctx) {
		must(t, err)
		equal(t, step.Output.IsSet(), false)
	}
	artifacts := got[[]*belay.Artifact](t)(belay.Collect(execution.Artifacts(ctx, belay.PageSize(2))))
	equal(t, len(artifacts), 3)
	equal(t, string(got[[]byte](t)(execution.ReadArtifact(ctx, artifacts[1].Name))), "1")
	again := got[*belay.Execution](t)(client.Execution(execution.ID()))
	equal(t, again.Name(), execution.Name())
	rest := got[[]*belay.Event](t)(belay.Collect(execution.Events(ctx, belay.After(events[2].Cursor))))
	equal(t, rest[0].Sequence, int64(4))
}

func TestValuesAreDecodedIntoWhatTheCallerHas(t *testing.T) {
	_, client := live(t)
	ctx := within(t)
	execution := start(t, client, noop(object{"n": uint64(1<<64 - 1), "text": "日本 🌱 \u2028 \u0000 <&>"}))
	var typed struct {
		Value struct {
			N    uint64
			Text string
		}
	}
	must(t, execution.Result(ctx, &typed))
	if typed.Value.N != 1<<64-1 || typed.Value.Text != "日本 🌱 \u2028 \u0000 <&>" {
		t.Fatalf("%+v", typed)
	}
	var loose any
	must(t, execution.Output(ctx, "say", &loose))
	equal(t, loose.(object)["n"], json.Number("18446744073709551615"))
	must(t, execution.Result(ctx, nil))
	var number int
	refused(t, execution.Output(ctx, "say", &number), "INVALID_USAGE")
}

func TestAFailureIsDataAndResultReturnsIt(t *testing.T) {
	_, client := live(t)
	ctx := within(t)
	execution := start(t, client, object{"id": "fails", "steps": []object{{"id": "a", "tool": "noop", "arguments": object{"fail": "out of luck"}}}})
	err := execution.Result(ctx, nil)
	var failed *belay.ExecutionFailedError
	if !errors.As(err, &failed) || failed.Info.State != "FAILED" || failed.Failure.Class != "TRANSIENT" {
		t.Fatal(err)
	}
	contains(t, err.Error(), "out of luck", "docs/errors.md#tool_failed")
	refused(t, err, "TOOL_FAILED")
	event := first(t, execution.Events(ctx), func(event *belay.Event) bool { return event.Kind == "step_failed" })
	equal(t, event.Failure().Reason, "TOOL_FAILED")
	equal(t, got[*belay.StepInfo](t)(execution.Step(ctx, "a")).Failure.Message, failed.Failure.Message)
}

func TestChanges(t *testing.T) {
	_, client := live(t)
	ctx := within(t)
	execution := start(t, client, waiting, belay.StartPaused())
	etag := execution.Info().ETag
	equal(t, execution.Info().State, "PAUSED")
	got[*belay.ExecutionInfo](t)(execution.Resume(ctx, belay.ETag(etag)))
	_, err := execution.Pause(ctx, "", belay.ETag(etag))
	if !errors.Is(err, belay.Aborted) {
		t.Fatal(err)
	}
	paused := got[*belay.ExecutionInfo](t)(execution.Pause(ctx, "lunch", belay.ResumeTime(time.Now().Add(time.Hour))))
	equal(t, paused.State, "PAUSED")
	got[*belay.ExecutionInfo](t)(execution.Resume(ctx))
	got[*belay.ExecutionInfo](t)(execution.Signal(ctx, "go", object{"n": int64(1<<53 + 1)}))
	var result struct{ Got struct{ N int64 } }
	must(t, execution.Result(ctx, &result))
	equal(t, result.Got.N, int64(1<<53+1))
	fork := got[*belay.Execution](t)(execution.Fork(ctx, belay.FromStep("wait"), belay.Reason("again"), belay.StartPaused()))
	equal(t, fork.Info().State, "PAUSED")
	equal(t, fork.Info().Raw.GetForkedFrom(), execution.Name())
	got[*belay.ExecutionInfo](t)(fork.Cancel(ctx, "enough", belay.Kill()))
	equal(t, got[*belay.ExecutionInfo](t)(fork.Wait(ctx)).State, "CANCELLED")
	must(t, fork.Delete(ctx))
	if _, err := fork.Get(ctx); !errors.Is(err, belay.NotFound) {
		t.Fatal(err)
	}
}

func TestAWaitEndsWithItsContext(t *testing.T) {
	_, client := live(t)
	execution := start(t, client, waiting)
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := execution.Wait(short)
	var late *belay.WaitTimeoutError
	if !errors.As(err, &late) || !errors.Is(err, context.DeadlineExceeded) || late.Info == nil || late.Info.Ended() {
		t.Fatal(err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := execution.Wait(cancelled); !errors.Is(err, context.Canceled) || !errors.Is(err, belay.Cancelled) {
		t.Fatal(err)
	}
	got[*belay.ExecutionInfo](t)(execution.Signal(within(t), "go", nil))
	equal(t, got[*belay.ExecutionInfo](t)(execution.Wait(within(t))).Succeeded(), true)
}

func TestListsArePagedLazilyAndFiltered(t *testing.T) {
	server, _ := live(t)
	// A namespace of its own, also when the test is repeated.
	client := server.Client(t, belay.WithNamespace(fmt.Sprint("lists-", time.Now().UnixNano())))
	ctx := within(t)
	var names, listed []string
	for n := range 5 {
		names = append(names, start(t, client, noop(n), belay.Labels(map[string]string{"page": "lazy"})).Name())
	}
	for info, err := range client.Executions(ctx, `labels.page = "lazy"`, belay.PageSize(2), belay.OrderBy("create_time")) {
		must(t, err)
		listed = append(listed, info.Name)
	}
	equal(t, listed, names)
	for _, err := range client.Executions(ctx, "stat = FAILED") {
		equal(t, refused(t, err, "INVALID_ARGUMENT").Fields[0].Field, "filter")
	}
	_, err := belay.Collect(client.Executions(ctx, "", belay.PageSize(-1)))
	if !errors.Is(err, belay.InvalidArgument) {
		t.Fatal(err)
	}
}

func TestValidationStartsNothing(t *testing.T) {
	_, client := live(t)
	equal(t, len(got[[]belay.FieldViolation](t)(client.Validate(within(t), noop(1)))), 0)
	problems := got[[]belay.FieldViolation](t)(client.Validate(within(t), object{"id": "x", "steps": []object{{"id": "a", "tol": "noop"}}}))
	equal(t, []string{problems[0].Field, problems[1].Field}, []string{"steps[0].tool", "steps[0].tol"})
	equal(t, problems[0].Line, 1)
}

func TestEveryUnaryMethodIsReachableRaw(t *testing.T) {
	_, client := live(t)
	ctx := within(t)
	execution := start(t, client, noop(1))
	got[*belay.ExecutionInfo](t)(execution.Wait(ctx))
	var timeline belayv1.Timeline
	request := &belayv1.GetTimelineRequest{Name: execution.Name()}
	must(t, client.Call(ctx, "ExecutorService/GetTimeline", request, &timeline))
	if len(timeline.Rows) == 0 {
		t.Fatal("no rows")
	}
	for method, part := range map[string]string{
		"ExecutorService/GetTimelines": "ExecutorService/GetTimeline,", "ExecutorService/GetStep": "GetStepRequest", "ExecutorService/WatchExecution": "has to be",
	} {
		contains(t, client.Call(ctx, method, request, &timeline).Error(), part)
	}
	contains(t, client.Call(ctx, "ExecutorService/GetTimeline", request, &belayv1.Step{}).Error(), "Timeline")
}

func TestLargeOutputs(t *testing.T) {
	_, client := live(t)
	ctx := within(t)
	plan := object{"id": "large", "inputs": object{"piece": object{}}, "outputs": object{"a": "${a.result}"}, "steps": []object{
		{"id": "a", "tool": "noop", "arguments": object{"output": strings.Repeat("${inputs.piece}", 10)}},
	}}
	piece := strings.Repeat("é", 10_000)
	execution := start(t, client, plan, belay.Inputs(object{"piece": piece}))
	var result struct{ A string }
	must(t, execution.Result(ctx, &result))
	equal(t, result.A == strings.Repeat(piece, 10), true)
	step := got[*belay.StepInfo](t)(execution.Step(ctx, "a"))
	blob := step.Output.Blob()
	if blob == nil || blob.SizeBytes != 200_002 || len(blob.Digits()) != 64 {
		t.Fatalf("%+v", blob)
	}
	refused(t, step.Output.Decode(&result), "INVALID_USAGE")
	data := got[[]byte](t)(execution.ReadBlob(ctx, blob))
	var half []byte
	for piece, err := range execution.StreamBlob(ctx, &belay.Blob{Digest: blob.Digest}, belay.Offset(100_000)) {
		must(t, err)
		half = append(half, piece...)
	}
	equal(t, string(half) == string(data[100_000:]), true)
	_, err := belay.Collect(execution.StreamBlob(ctx, blob, belay.Offset(blob.SizeBytes+1)))
	if !errors.Is(err, belay.OutOfRange) {
		t.Fatal(err)
	}
	if _, err := execution.ReadBlob(ctx, &belay.Blob{Digest: strings.Repeat("0", 64)}); !errors.Is(err, belay.NotFound) {
		t.Fatal(err)
	}
	_, err = execution.ReadBlob(ctx, &belay.Blob{Digest: blob.Digest, SizeBytes: 7})
	refused(t, err, "BLOB_DAMAGED")
}

func TestGoroutinesShareAClientAndAHandle(t *testing.T) {
	_, client := live(t)
	ctx := within(t)
	common := start(t, client, waiting)
	var group sync.WaitGroup
	failures := make(chan error, 100)
	for number := range 8 {
		group.Add(1)
		go func() {
			defer group.Done()
			for n := range 5 {
				execution, err := client.Start(ctx, noop([]int{number, n}))
				if err != nil {
					failures <- err
					return
				}
				var result struct{ Value []int }
				if err := execution.Result(ctx, &result); err != nil || !slices.Equal(result.Value, []int{number, n}) {
					failures <- fmt.Errorf("%v: %w", result, err)
				}
				if _, err := common.Get(ctx); err != nil || common.Info() == nil {
					failures <- fmt.Errorf("get: %w", err)
				}
			}
			if _, err := common.Wait(ctx); err != nil {
				failures <- err
			}
		}()
	}
	seen := make([][]*belay.Event, 2)
	for index := range seen {
		group.Add(1)
		go func() {
			defer group.Done()
			events, err := belay.Collect(common.Events(ctx))
			if err != nil {
				failures <- err
			}
			seen[index] = events
		}()
	}
	got[*belay.ExecutionInfo](t)(common.Signal(ctx, "go", nil))
	group.Wait()
	close(failures)
	for err := range failures {
		t.Error(err)
	}
	equal(t, ids(t, seen[0]), ids(t, seen[1]))
}
