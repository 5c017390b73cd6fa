// Command planner submits a plan, watches it, and reacts to a failure by an edited plan.
//
//	go run ./examples/planner --workspace /path/to/a/folder --key monday
//
// The plan sums up a settings file. Where the file is missing, the planner adds a step that writes one, and the execution continues; what has completed is kept.
// With the same key, a planner that was stopped returns to its execution.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"belay.dev/go"
)

// maxEdits is how often the planner edits its plan before it leaves the execution to people.
const maxEdits = 3

// Plan is as much of a plan as this planner uses.
type Plan struct {
	ID      string            `json:"id"`
	Outputs map[string]string `json:"outputs"`
	Steps   []Step            `json:"steps"`
}

// Step is a call of a tool.
type Step struct {
	ID        string            `json:"id"`
	Tool      string            `json:"tool"`
	DependsOn []string          `json:"depends_on,omitempty"`
	Arguments map[string]string `json:"arguments"`
}

func newPlan() Plan {
	return Plan{ID: "summary", Outputs: map[string]string{"summary": "${summarize.result}"}, Steps: []Step{
		{ID: "list", Tool: "list_directory", Arguments: map[string]string{"path": "."}},
		{ID: "read", Tool: "read_file", DependsOn: []string{"list"}, Arguments: map[string]string{"path": "settings.json"}},
		{ID: "summarize", Tool: "noop", Arguments: map[string]string{"output": "settings: ${read.result.content}"}},
	}}
}

// edit changes the plan so that it avoids the failure of a step. It returns false when this planner knows no way.
func edit(plan *Plan, stepID string, failure *belay.Failure) bool {
	if failure.Reason != "FILE_NOT_FOUND" {
		return false
	}
	for index := range plan.Steps {
		step := &plan.Steps[index]
		if step.ID == stepID {
			step.DependsOn = append(step.DependsOn, "write_default")
			content := map[string]string{"path": step.Arguments["path"], "content": "{}\n"}
			plan.Steps = append(plan.Steps, Step{ID: "write_default", Tool: "write_file", Arguments: content})
			return true
		}
	}
	return false
}

// follow prints the events until the execution ends. It returns the last cursor, and the failures by step.
func follow(ctx context.Context, execution *belay.Execution, cursor string) (string, map[string]*belay.Failure, error) {
	failures := map[string]*belay.Failure{}
	for event, err := range execution.Events(ctx, belay.After(cursor)) {
		if err != nil {
			return cursor, nil, err
		}
		cursor = event.Cursor
		fmt.Printf("%4d %s %s\n", event.Sequence, event.Kind, event.StepID)
		switch failure := event.Failure(); {
		case event.Kind == "step_failed" && failure != nil:
			failures[event.StepID] = failure
		case event.Kind == "execution_retried":
			// An earlier run of this planner has reacted to what failed before.
			clear(failures)
		}
	}
	return cursor, failures, nil
}

// react continues the execution with an edited plan. It returns false when there is nothing that it can do.
func react(ctx context.Context, execution *belay.Execution, plan *Plan, failures map[string]*belay.Failure) (bool, error) {
	for stepID, failure := range failures {
		if !edit(plan, stepID, failure) {
			continue
		}
		fmt.Printf("%s failed: %s; the plan is edited\n", stepID, failure.Message)
		_, err := execution.Retry(ctx, belay.WithPlan(plan), belay.Reason(failure.Reason+" in "+stepID))
		return true, err
	}
	return false, nil
}

func run(ctx context.Context, options ...belay.StartOption) error {
	client, err := belay.Connect(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	plan, cursor := newPlan(), ""
	execution, err := client.Start(ctx, plan, append(options, belay.Labels(map[string]string{"planner": "summary"}))...)
	if err != nil {
		return err
	}
	fmt.Println("execution", execution.ID())
	for range maxEdits {
		var failures map[string]*belay.Failure
		if cursor, failures, err = follow(ctx, execution, cursor); err != nil {
			return err
		}
		edited, err := react(ctx, execution, &plan, failures)
		if err != nil {
			return err
		}
		if !edited {
			break
		}
	}
	var result struct{ Summary string }
	if err := execution.Result(ctx, &result); err != nil {
		return err
	}
	fmt.Println(result.Summary)
	return nil
}

func main() {
	workspace := flag.String("workspace", "", "the folder that the plan works in; without it, a new one")
	key := flag.String("key", "", "names this run: the same key returns to the same execution")
	flag.Parse()
	var options []belay.StartOption
	if *workspace != "" {
		options = append(options, belay.Workspace(*workspace))
	}
	if *key != "" {
		options = append(options, belay.Key(*key))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, options...); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
