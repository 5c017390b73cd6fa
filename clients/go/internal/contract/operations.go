package contract

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"belay.dev/go"
)

// arguments are those of a step. Each that is taken is known to the runner.
type arguments struct {
	values map[string]any
	taken  []string
	client *belay.Client
}

func (a *arguments) take(name string) any {
	a.taken = append(a.taken, name)
	return a.values[name]
}

func (a *arguments) has(name string) bool { return a.values[name] != nil }

func (a *arguments) text(name string) string {
	text, _ := a.take(name).(string)
	return text
}

func (a *arguments) number(name string) int {
	number, _ := a.take(name).(json.Number)
	whole, _ := number.Int64()
	return int(whole)
}

// seconds returns a duration, and whether it is given.
func (a *arguments) seconds(name string) (time.Duration, bool) {
	number, ok := a.take(name).(json.Number)
	seconds, err := number.Float64()
	return time.Duration(seconds * float64(time.Second)), ok && err == nil
}

func (a *arguments) flag(name string) bool {
	set, _ := a.take(name).(bool)
	return set
}

func (a *arguments) rest() []string {
	var unknown []string
	for name := range a.values {
		if !slices.Contains(a.taken, name) {
			unknown = append(unknown, name)
		}
	}
	return unknown
}

// operation carries out a step. It returns what is compared, and a handle that is kept in its place, if it has one.
type operation func(r *runner, ctx context.Context, a *arguments) (observed, any, error)

var operations map[string]operation

func init() {
	operations = map[string]operation{
		"connect": func(r *runner, ctx context.Context, a *arguments) (observed, any, error) {
			client, err := r.connect(ctx, a)
			return observed{}, client, err
		},
		"add_principal": func(r *runner, ctx context.Context, a *arguments) (observed, any, error) {
			var roles []string
			for _, role := range list(a.take("roles")) {
				roles = append(roles, role.(string))
			}
			token, err := r.server.AddPrincipal(ctx, a.text("name"), roles...)
			return observed{"token": token}, nil, err
		},
		"kill_server": func(r *runner, _ context.Context, _ *arguments) (observed, any, error) {
			return observed{}, nil, r.server.Kill()
		},
		"start_server": func(r *runner, _ context.Context, _ *arguments) (observed, any, error) {
			return observed{}, nil, r.server.Start()
		},
		"command": func(r *runner, ctx context.Context, a *arguments) (observed, any, error) {
			var words []string
			for _, word := range list(a.take("arguments")) {
				words = append(words, word.(string))
			}
			output, err := r.server.Command(ctx, words...)
			return observed{"output": output}, nil, err
		},
		"join": func(_ *runner, _ context.Context, a *arguments) (observed, any, error) {
			joined := []any{}
			for _, one := range list(normal(a.take("lists"))) {
				joined = append(joined, list(one)...)
			}
			return observed{"value": joined}, nil, nil
		},
		"start": start,
		"validate": func(r *runner, ctx context.Context, a *arguments) (observed, any, error) {
			fields := []string{}
			plan := a.take("plan")
			validate := r.client.Validate
			if validate == nil {
				validate = func(call func() error) error { return call() }
			}
			err := validate(func() error {
				problems, err := a.client.Validate(ctx, plan)
				for _, problem := range problems {
					fields = append(fields, problem.Field)
				}
				return err
			})
			return observed{"fields": fields}, nil, err
		},
		"get": of(func(e *belay.Execution, _ *runner, ctx context.Context, _ *arguments) (observed, any, error) {
			return info(e.Get(ctx))
		}),
		"wait": of(func(e *belay.Execution, _ *runner, ctx context.Context, a *arguments) (observed, any, error) {
			ctx, cancel := within(ctx, a)
			defer cancel()
			return info(e.Wait(ctx))
		}),
		"result": of(func(e *belay.Execution, r *runner, ctx context.Context, a *arguments) (observed, any, error) {
			ctx, cancel := within(ctx, a)
			defer cancel()
			var value any
			err := e.Result(ctx, &value)
			if r.client.Result != nil {
				value = r.client.Result(value)
			}
			return observed{"value": value}, nil, err
		}),
		"events": of(func(e *belay.Execution, r *runner, ctx context.Context, a *arguments) (observed, any, error) {
			events, err := belay.Collect(r.events(ctx, e, a.text("after")))
			return eventsSeen(events), nil, err
		}),
		"open_events": of(func(e *belay.Execution, r *runner, _ context.Context, a *arguments) (observed, any, error) {
			// The stream outlives the step, and ends with the case.
			ctx, cancel := context.WithCancel(context.Background())
			return observed{}, newPulled(r, cancel, r.events(ctx, e, a.text("after"))), nil
		}),
		"read_events": readEvents,
		"steps": of(func(e *belay.Execution, _ *runner, ctx context.Context, _ *arguments) (observed, any, error) {
			steps, err := belay.Collect(e.Steps(ctx))
			return observed{
				"ids":    each(steps, func(one *belay.StepInfo) any { return one.ID }),
				"states": each(steps, func(one *belay.StepInfo) any { return one.State }),
			}, nil, err
		}),
		"step": of(func(e *belay.Execution, _ *runner, ctx context.Context, a *arguments) (observed, any, error) {
			step, err := e.Step(ctx, a.text("step"))
			if err != nil {
				return nil, nil, err
			}
			found := observed{"state": step.State, "title": step.Title, "skip_reason": step.SkipReason, "attempt": step.Attempt, "output": nil}
			if text := step.Output.JSON(); text != "" {
				found["output"] = json.RawMessage(text)
			}
			return found, nil, nil
		}),
		"output": of(output),
		"read_blob": of(func(e *belay.Execution, _ *runner, ctx context.Context, a *arguments) (observed, any, error) {
			data, err := e.ReadBlob(ctx, &belay.Blob{Digest: a.text("blob")})
			return observed{"size": len(data), "text": string(data)}, nil, err
		}),
		"artifacts": of(func(e *belay.Execution, _ *runner, ctx context.Context, a *arguments) (observed, any, error) {
			var options []belay.ArtifactsOption
			if kind := a.text("kind"); kind != "" {
				options = append(options, belay.OfKind(kind))
			}
			found, err := belay.Collect(e.Artifacts(ctx, options...))
			return observed{
				"steps": each(found, func(one *belay.Artifact) any { return one.StepID }),
				"paths": each(found, func(one *belay.Artifact) any { return one.Path }),
				"kinds": each(found, func(one *belay.Artifact) any { return one.Kind }),
			}, nil, err
		}),
		"executions": func(_ *runner, ctx context.Context, a *arguments) (observed, any, error) {
			found, err := belay.Collect(a.client.Executions(ctx, a.text("filter"), belay.PageSize(a.number("page_size"))))
			return executionsSeen(found), nil, err
		},
		"open_executions": func(r *runner, _ context.Context, a *arguments) (observed, any, error) {
			ctx, cancel := context.WithCancel(context.Background())
			list := a.client.Executions(ctx, a.text("filter"), belay.PageSize(a.number("page_size")))
			return observed{}, newPulled(r, cancel, list), nil
		},
		"read_executions": func(_ *runner, _ context.Context, a *arguments) (observed, any, error) {
			list, ok := a.take("list").(*pulled[*belay.ExecutionInfo])
			if !ok {
				return nil, nil, errors.New("no list")
			}
			found, err := list.read(a.number("count"), func(*belay.ExecutionInfo) bool { return false })
			return executionsSeen(found), nil, err
		},
		"approval": of(pendingApproval),
		"show": decision(func(one *belay.Approval, ctx context.Context, _ *arguments) (*belay.Approval, error) {
			return one.Show(ctx)
		}),
		"changes": func(_ *runner, ctx context.Context, a *arguments) (observed, any, error) {
			one, ok := a.take("approval").(*shown)
			if !ok {
				return nil, nil, errors.New("no approval")
			}
			changes, err := belay.Collect(one.approval.Changes(ctx))
			return observed{
				"paths": each(changes, func(one *belay.PathChange) any { return one.Path }),
				"kinds": each(changes, func(one *belay.PathChange) any { return one.Kind }),
			}, nil, err
		},
		"approve": decision(func(one *belay.Approval, ctx context.Context, a *arguments) (*belay.Approval, error) {
			return one.Approve(ctx, a.text("note"))
		}),
		"deny": decision(func(one *belay.Approval, ctx context.Context, a *arguments) (*belay.Approval, error) {
			return one.Deny(ctx, a.text("reason"))
		}),
		"skip": decision(func(one *belay.Approval, ctx context.Context, a *arguments) (*belay.Approval, error) {
			return one.Skip(ctx, a.text("reason"))
		}),
		"answer": decision(func(one *belay.Approval, ctx context.Context, a *arguments) (*belay.Approval, error) {
			return one.Answer(ctx, a.take("value"))
		}),
		"requests": requests,
	}
	for name, change := range changes {
		operations[name] = of(change)
	}
}

// connect makes a client, which is closed with the case.
func (r *runner) connect(ctx context.Context, a *arguments) (*belay.Client, error) {
	options := []belay.ConnectOption{belay.WithNamespace(r.namespace)}
	over, token := a.text("over"), a.text("token")
	switch {
	case r.script != nil:
		options = append(options, belay.WithURL(r.script.URL))
	case over == "tcp":
		options = append(options, belay.WithURL(r.server.HTTPURL()))
	default:
		options = append(options, belay.WithURL(r.server.URL()))
	}
	if token != "" {
		options = append(options, belay.WithToken(token))
	}
	for name, option := range map[string]func(time.Duration) belay.ConnectOption{
		"timeout": belay.WithTimeout, "retry_for": belay.WithRetryFor, "reconnect_for": belay.WithReconnectFor, "heartbeat": belay.WithHeartbeat,
	} {
		if seconds, ok := a.seconds(name); ok {
			options = append(options, option(seconds))
		}
	}
	client, err := belay.Connect(ctx, options...)
	if err == nil {
		r.closers = append(r.closers, func() { _ = client.Close() })
	}
	return client, err
}

// of returns the operation on the execution that the step names: a handle, or an id.
func of(do func(*belay.Execution, *runner, context.Context, *arguments) (observed, any, error)) operation {
	return func(r *runner, ctx context.Context, a *arguments) (observed, any, error) {
		name := ""
		switch one := a.take("execution").(type) {
		case *belay.Execution:
			name = one.Name()
		case string:
			name = one
		}
		execution, err := a.client.Execution(name)
		if err != nil {
			return nil, nil, err
		}
		return do(execution, r, ctx, a)
	}
}

func within(ctx context.Context, a *arguments) (context.Context, context.CancelFunc) {
	if timeout, ok := a.seconds("timeout"); ok {
		return context.WithTimeout(ctx, timeout)
	}
	return context.WithCancel(ctx)
}

func start(_ *runner, ctx context.Context, a *arguments) (observed, any, error) {
	var options []belay.StartOption
	if a.has("inputs") {
		options = append(options, belay.Inputs(a.take("inputs")))
	}
	if a.has("inputs_json") {
		options = append(options, belay.Inputs(json.RawMessage(a.text("inputs_json"))))
	}
	if a.has("key") {
		options = append(options, belay.Key(a.text("key")))
	}
	if a.has("id") {
		options = append(options, belay.ID(a.text("id")))
	}
	if a.has("approval_mode") {
		options = append(options, belay.ApprovalMode(a.text("approval_mode")))
	}
	if a.has("labels") {
		labels := map[string]string{}
		for name, value := range a.take("labels").(map[string]any) {
			labels[name], _ = value.(string)
		}
		options = append(options, belay.Labels(labels))
	}
	if a.flag("start_paused") {
		options = append(options, belay.StartPaused())
	}
	return handle(a.client.Start(ctx, a.take("plan"), options...))
}

func handle(execution *belay.Execution, err error) (observed, any, error) {
	if err != nil {
		return nil, nil, err
	}
	return observed{"name": execution.Name(), "id": execution.ID()}, execution, nil
}

func output(e *belay.Execution, _ *runner, ctx context.Context, a *arguments) (observed, any, error) {
	name := a.text("step")
	step, err := e.Step(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	var value any
	found := observed{"is_blob": step.Output.Blob() != nil}
	if blob := step.Output.Blob(); blob != nil {
		data, err := e.ReadBlob(ctx, blob)
		if err != nil {
			return nil, nil, err
		}
		found["size"], found["sha256"] = len(data), fmt.Sprintf("%x", sha256.Sum256(data))
	}
	err = e.Output(ctx, name, &value)
	found["value"] = value
	return found, nil, err
}

// events returns the events of an execution as the client under test shows them.
func (r *runner) events(ctx context.Context, e *belay.Execution, after string) iter.Seq2[*belay.Event, error] {
	events := e.Events(ctx, belay.After(after))
	if r.client.Events != nil {
		return r.client.Events(events)
	}
	return events
}

// pulled is an open stream or list that several steps read.
type pulled[T any] struct{ next func() (T, error, bool) }

func newPulled[T any](r *runner, cancel func(), entries iter.Seq2[T, error]) *pulled[T] {
	next, stop := iter.Pull2(entries)
	r.closers = append(r.closers, func() {
		cancel()
		stop()
	})
	return &pulled[T]{next}
}

// read returns so many entries, or those up to the last one that is wanted, or the rest.
func (p *pulled[T]) read(count int, isLast func(T) bool) ([]T, error) {
	var found []T
	for {
		entry, err, ok := p.next()
		if err != nil || !ok {
			return found, err
		}
		found = append(found, entry)
		if len(found) == count || isLast(entry) {
			return found, nil
		}
	}
}

func readEvents(_ *runner, _ context.Context, a *arguments) (observed, any, error) {
	stream, ok := a.take("stream").(*pulled[*belay.Event])
	if !ok {
		return nil, nil, errors.New("no stream")
	}
	until := a.text("until")
	events, err := stream.read(a.number("count"), func(event *belay.Event) bool { return event.Kind == until })
	return eventsSeen(events), nil, err
}

func eventsSeen(events []*belay.Event) observed {
	resets := []string{}
	cursor := ""
	for _, event := range events {
		if event.Kind == "reset" {
			resets = append(resets, event.ResetReason)
		}
		cursor = event.Cursor
	}
	return observed{
		"sequences":     each(events, func(event *belay.Event) any { return event.Sequence }),
		"kinds":         each(events, func(event *belay.Event) any { return event.Kind }),
		"ids":           each(events, func(event *belay.Event) any { return event.ID() }),
		"steps":         each(events, func(event *belay.Event) any { return event.StepID }),
		"uids":          each(events, func(event *belay.Event) any { return event.UID }),
		"cursors":       each(events, func(event *belay.Event) any { return event.Cursor }),
		"reset_reasons": resets,
		"cursor":        cursor,
	}
}

func executionsSeen(found []*belay.ExecutionInfo) observed {
	return observed{
		"names":  each(found, func(one *belay.ExecutionInfo) any { return one.Name }),
		"states": each(found, func(one *belay.ExecutionInfo) any { return one.State }),
	}
}

func each[T any](entries []T, member func(T) any) []any {
	members := []any{}
	for _, entry := range entries {
		members = append(members, member(entry))
	}
	return members
}

// shown is what a client shows of an approval.
type shown struct {
	approval *belay.Approval
	members  observed
}

func show(one *belay.Approval) (observed, any, error) {
	members := observed{
		"name": one.Name, "id": one.ID, "kind": one.Kind, "state": one.State, "tool": one.Tool, "step": one.StepID, "risk": one.Risk,
		"operation": one.Operation, "digest": one.Digest, "headline": one.Headline, "form_schema": nil,
	}
	if one.Form != nil {
		members["form_schema"] = json.RawMessage(one.Form.Schema.JSON())
	}
	return members, &shown{one, members}, nil
}

// pendingApproval waits until one is pending: by the watch, which shows each as it changes.
func pendingApproval(e *belay.Execution, _ *runner, ctx context.Context, a *arguments) (observed, any, error) {
	step := a.text("step")
	for update, err := range a.client.Approvals().Watch(ctx, belay.OfExecution(e.Name())) {
		if err != nil {
			return nil, nil, err
		}
		if one := update.Approval; one != nil && one.IsPending() && (step == "" || step == one.StepID) {
			return show(one)
		}
	}
	return nil, nil, errors.New("the watch has ended")
}

// decision returns the operation on an approval that returns it anew. `shown` decides it as if this digest had been shown.
func decision(do func(*belay.Approval, context.Context, *arguments) (*belay.Approval, error)) operation {
	return func(r *runner, ctx context.Context, a *arguments) (observed, any, error) {
		one, ok := a.take("approval").(*shown)
		if !ok {
			return nil, nil, errors.New("no approval")
		}
		approval := *one.approval
		if digest := a.text("shown"); digest != "" {
			approval.Digest = digest
		}
		if r.client.Decide != nil {
			r.client.Decide(&approval)
		}
		decided, err := do(&approval, ctx, a)
		if err != nil {
			return nil, nil, err
		}
		return show(decided)
	}
}

func info(found *belay.ExecutionInfo, err error) (observed, any, error) {
	if err != nil {
		return nil, nil, err
	}
	seen := observed{
		"state": found.State, "labels": found.Labels, "plan_revision": found.PlanRevision, "etag": found.ETag, "failure_reason": "", "failure_message": "",
	}
	if found.Failure != nil {
		seen["failure_reason"], seen["failure_message"] = found.Failure.Reason, found.Failure.Message
	}
	return seen, nil, nil
}

// requests returns what came to the scripted server.
func requests(r *runner, _ context.Context, a *arguments) (observed, any, error) {
	found := r.script.Requests(a.text("method"))
	cursors, offsets, keys := []string{}, []int64{}, map[string]bool{}
	for _, request := range found {
		message := request.Message.ProtoReflect()
		field := func(name protoreflect.Name) protoreflect.Value {
			if field := message.Descriptor().Fields().ByName(name); field != nil {
				return message.Get(field)
			}
			return protoreflect.Value{}
		}
		cursor, _ := field("cursor").Interface().(string)
		offset, _ := field("offset").Interface().(int64)
		key, _ := field("request_id").Interface().(string)
		cursors, offsets, keys[key] = append(cursors, cursor), append(offsets, offset), true
	}
	return observed{"count": len(found), "cursors": cursors, "offsets": offsets, "distinct_request_ids": len(keys)}, nil, nil
}
