package contract

import (
	"context"

	"belay.dev/go"
)

// changes are the operations that change an execution and return it as it is then.
var changes = map[string]func(*belay.Execution, *runner, context.Context, *arguments) (observed, any, error){
	"cancel": func(e *belay.Execution, _ *runner, ctx context.Context, a *arguments) (observed, any, error) {
		options := given[belay.CancelOption](a, "etag", etag)
		if a.flag("kill") {
			options = append(options, belay.Kill())
		}
		return info(e.Cancel(ctx, a.text("reason"), options...))
	},
	"pause": func(e *belay.Execution, _ *runner, ctx context.Context, a *arguments) (observed, any, error) {
		return info(e.Pause(ctx, a.text("reason"), given[belay.PauseOption](a, "etag", etag)...))
	},
	"resume": func(e *belay.Execution, _ *runner, ctx context.Context, a *arguments) (observed, any, error) {
		return info(e.Resume(ctx, given[belay.TagOption](a, "etag", etag)...))
	},
	"signal": func(e *belay.Execution, _ *runner, ctx context.Context, a *arguments) (observed, any, error) {
		return info(e.Signal(ctx, a.text("signal"), a.take("payload")))
	},
	"retry": func(e *belay.Execution, _ *runner, ctx context.Context, a *arguments) (observed, any, error) {
		options := append(given[belay.RetryOption](a, "etag", etag), given[belay.RetryOption](a, "reason", reason)...)
		if a.has("plan") {
			options = append(options, belay.WithPlan(a.take("plan")))
		}
		if a.has("from_step") {
			options = append(options, belay.FromStep(a.text("from_step")))
		}
		return info(e.Retry(ctx, options...))
	},
	"update_plan": func(e *belay.Execution, _ *runner, ctx context.Context, a *arguments) (observed, any, error) {
		options := append(given[belay.UpdatePlanOption](a, "etag", etag), given[belay.UpdatePlanOption](a, "reason", reason)...)
		if a.has("revision") {
			options = append(options, belay.Revision(a.number("revision")))
		}
		return info(e.UpdatePlan(ctx, a.take("plan"), options...))
	},
	"fork": func(e *belay.Execution, _ *runner, ctx context.Context, a *arguments) (observed, any, error) {
		options := given[belay.ForkOption](a, "reason", reason)
		if a.has("from_step") {
			options = append(options, belay.FromStep(a.text("from_step")))
		}
		return handle(e.Fork(ctx, options...))
	},
	"resolve": func(e *belay.Execution, _ *runner, ctx context.Context, a *arguments) (observed, any, error) {
		options := given[belay.ResolveOption](a, "reason", reason)
		if a.has("result") {
			options = append(options, belay.StepResult(a.take("result")))
		}
		return info(e.Resolve(ctx, a.text("step"), a.text("resolution"), options...))
	},
	"retry_step": func(e *belay.Execution, _ *runner, ctx context.Context, a *arguments) (observed, any, error) {
		return info(e.RetryStep(ctx, a.text("step"), a.text("change"), given[belay.StepOption](a, "reason", reason)...))
	},
	"skip_step": func(e *belay.Execution, _ *runner, ctx context.Context, a *arguments) (observed, any, error) {
		return info(e.SkipStep(ctx, a.text("step"), given[belay.StepOption](a, "reason", reason)...))
	},
	"set_step_output": func(e *belay.Execution, _ *runner, ctx context.Context, a *arguments) (observed, any, error) {
		return info(e.SetStepOutput(ctx, a.text("step"), a.take("output"), given[belay.StepOption](a, "reason", reason)...))
	},
	"delete": func(e *belay.Execution, _ *runner, ctx context.Context, a *arguments) (observed, any, error) {
		return observed{}, nil, e.Delete(ctx, given[belay.TagOption](a, "etag", etag)...)
	},
}

func etag(text string) any   { return belay.ETag(text) }
func reason(text string) any { return belay.Reason(text) }

// given returns the option for an argument, if it is given.
func given[O any](a *arguments, name string, option func(string) any) []O {
	if !a.has(name) {
		return nil
	}
	return []O{option(a.text(name)).(O)}
}
