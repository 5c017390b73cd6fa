package belay

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	"belay.dev/go/belayv1"
)

// The changes of an execution. Each returns the execution as it is after the change. In another state than the change needs, the error is
// [FailedPrecondition]; with [ETag] it is [Aborted] when the execution has changed since.

// Cancel cancels the execution: running calls are cancelled and other steps skipped.
func (e *Execution) Cancel(ctx context.Context, reason string, opts ...CancelOption) (*ExecutionInfo, error) {
	o := gather(CancelOption.cancel, opts)
	return e.ask(ctx, "CancelExecution", &belayv1.CancelExecutionRequest{
		Name: e.name, Reason: reason, Kill: o.kill, Etag: o.etag, RequestId: requestID(o.key),
	})
}

// Pause pauses the execution: nothing new starts.
func (e *Execution) Pause(ctx context.Context, reason string, opts ...PauseOption) (*ExecutionInfo, error) {
	o := gather(PauseOption.pause, opts)
	request := &belayv1.PauseExecutionRequest{
		Name: e.name, Reason: reason, DiscardCalls: o.discardCalls, Etag: o.etag, RequestId: requestID(o.key),
	}
	if o.resumeTime != nil {
		request.ResumeTime = timestamppb.New(*o.resumeTime)
	}
	return e.ask(ctx, "PauseExecution", request)
}

// Resume resumes a paused execution.
func (e *Execution) Resume(ctx context.Context, opts ...TagOption) (*ExecutionInfo, error) {
	o := gather(TagOption.tag, opts)
	return e.ask(ctx, "ResumeExecution", &belayv1.ResumeExecutionRequest{Name: e.name, Etag: o.etag, RequestId: requestID(o.key)})
}

// Signal sends a signal, whose payload (a JSON value of at most 32 KiB, or nil for none) becomes the result of the step that waits for it. It is kept until a
// step does.
func (e *Execution) Signal(ctx context.Context, signal string, payload any, opts ...KeyOption) (*ExecutionInfo, error) {
	request := &belayv1.SignalExecutionRequest{Name: e.name, Signal: signal, RequestId: requestID(gather(KeyOption.keyed, opts).key)}
	if payload != nil {
		var err error
		if request.Payload, err = toPayload(payload, "payload"); err != nil {
			return nil, err
		}
	}
	return e.ask(ctx, "SignalExecution", request)
}

// Retry runs the steps again that failed or were stopped, and all that depend on them; what has completed is kept. An execution that has ended continues.
func (e *Execution) Retry(ctx context.Context, opts ...RetryOption) (*ExecutionInfo, error) {
	o := gather(RetryOption.retry, opts)
	request := &belayv1.RetryExecutionRequest{
		Name: e.name, FromStep: o.fromStep, SkipFailed: o.skipFailed, StartPaused: o.startPaused, Reason: o.reason, Etag: o.etag, RequestId: requestID(o.key),
	}
	if o.plan != nil {
		var err error
		if request.Document, err = toDocument(o.plan); err != nil {
			return nil, err
		}
	}
	return e.ask(ctx, "RetryExecution", request)
}

// UpdatePlan changes the plan of an execution that has not ended: steps that have not started can be changed, removed and added.
func (e *Execution) UpdatePlan(ctx context.Context, plan any, opts ...UpdatePlanOption) (*ExecutionInfo, error) {
	o := gather(UpdatePlanOption.updatePlan, opts)
	document, err := toDocument(plan)
	if err != nil {
		return nil, err
	}
	request := &belayv1.UpdatePlanRequest{
		Name: e.name, Source: &belayv1.UpdatePlanRequest_Document{Document: document}, Reason: o.reason, Etag: o.etag, RequestId: requestID(o.key),
	}
	if o.revision != nil {
		revision := int32Of(*o.revision)
		request.Revision = &revision
	}
	return e.ask(ctx, "UpdatePlan", request)
}

// Fork starts another execution of the same plan from this one's state: what has completed, and does not depend on [FromStep], is taken over.
func (e *Execution) Fork(ctx context.Context, opts ...ForkOption) (*Execution, error) {
	o := gather(ForkOption.fork, opts)
	answer, err := unary[*belayv1.Execution](ctx, e.transport, "ExecutorService/ForkExecution", &belayv1.ForkExecutionRequest{
		Name: e.name, ExecutionId: o.id, FromStep: o.fromStep, Workspace: o.workspace, StartPaused: o.startPaused, Reason: o.reason,
		RequestId: requestID(o.key), AfterTurn: o.afterTurn, Model: o.model, OnCurrentFiles: o.onCurrentFiles,
	})
	if err != nil {
		return nil, err
	}
	return newExecution(e.transport, answer.Name, newExecutionInfo(answer)), nil
}

// Resolve continues with a step whose outcome was unknown: resolution is COMPLETED (with its [StepResult]), FAILED, or AGAIN.
func (e *Execution) Resolve(ctx context.Context, step, resolution string, opts ...ResolveOption) (*ExecutionInfo, error) {
	o := gather(ResolveOption.resolve, opts)
	number, err := enumNumber(belayv1.StepResolution(0), resolution, "STEP_RESOLUTION_", "resolution")
	if err != nil {
		return nil, err
	}
	name, err := stepName(e.name, step)
	if err != nil {
		return nil, err
	}
	request := &belayv1.ResolveStepRequest{
		Name: name, Resolution: belayv1.StepResolution(number), Reason: o.reason, Etag: o.etag, RequestId: requestID(o.key),
	}
	if o.hasResult {
		if request.Result, err = toPayload(o.result, "result"); err != nil {
			return nil, err
		}
	}
	return e.ask(ctx, "ResolveStep", request)
}

// RetryStep changes the next attempt of a step that waits for it: change is NOW, CANCEL, or FALLBACK (the step's next call).
func (e *Execution) RetryStep(ctx context.Context, step, change string, opts ...StepOption) (*ExecutionInfo, error) {
	o := gather(StepOption.changeStep, opts)
	number, err := enumNumber(belayv1.RetryChange(0), change, "RETRY_CHANGE_", "change")
	if err != nil {
		return nil, err
	}
	name, err := stepName(e.name, step)
	if err != nil {
		return nil, err
	}
	return e.ask(ctx, "RetryStep", &belayv1.RetryStepRequest{
		Name: name, Change: belayv1.RetryChange(number), Reason: o.reason, Etag: o.etag, RequestId: requestID(o.key),
	})
}

// SkipStep skips a step that has not started or waits for its next attempt. What depends on it runs as if it had completed without an output.
func (e *Execution) SkipStep(ctx context.Context, step string, opts ...StepOption) (*ExecutionInfo, error) {
	o := gather(StepOption.changeStep, opts)
	name, err := stepName(e.name, step)
	if err != nil {
		return nil, err
	}
	return e.ask(ctx, "SkipStep", &belayv1.SkipStepRequest{Name: name, Reason: o.reason, Etag: o.etag, RequestId: requestID(o.key)})
}

// SetStepOutput completes a step that has not started or waits for its next attempt, with this output (a JSON value of at most 32 KiB), without running it.
func (e *Execution) SetStepOutput(ctx context.Context, step string, output any, opts ...StepOption) (*ExecutionInfo, error) {
	o := gather(StepOption.changeStep, opts)
	name, err := stepName(e.name, step)
	if err != nil {
		return nil, err
	}
	payload, err := toPayload(output, "output")
	if err != nil {
		return nil, err
	}
	return e.ask(ctx, "SetStepOutput", &belayv1.SetStepOutputRequest{
		Name: name, Output: payload, Reason: o.reason, Etag: o.etag, RequestId: requestID(o.key),
	})
}

// Delete deletes an execution that has ended, with its events and results. A directory that was named as its workspace stays.
func (e *Execution) Delete(ctx context.Context, opts ...TagOption) error {
	o := gather(TagOption.tag, opts)
	request := &belayv1.DeleteExecutionRequest{Name: e.name, Etag: o.etag, RequestId: requestID(o.key)}
	_, err := e.transport.call(ctx, "ExecutorService/DeleteExecution", request)
	return err
}
