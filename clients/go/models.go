package belay

import (
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"belay.dev/go/belayv1"
)

// The values of this file are what the server has answered. Each has the message that it was made from as Raw, with all fields of the contract. States, kinds
// and classes are the contract's words without their prefix, such as COMPLETED: texts, because a newer server may have more of them. Times are in UTC, and
// the zero time means that it is not known. Nobody changes them, so goroutines can share them.

// ended are the states in which an execution has ended.
var ended = map[string]bool{"COMPLETED": true, "PARTIAL": true, "FAILED": true, "CANCELLED": true, "TIMED_OUT": true}

// Failure is the failure of a call, a step or an execution.
type Failure struct {
	// Class decides whether to retry, such as TRANSIENT.
	Class string
	// Message is a sentence for a person.
	Message string
	// Reason is a stable identifier for programs, such as TOOL_FAILED.
	Reason string
	// Retryable says that the failure could be retried, if attempts were left.
	Retryable bool
	// Metadata has facts by key, such as exit_code.
	Metadata map[string]string
	// RetryAfter is the time to wait before a retry can succeed; 0 when that is not known.
	RetryAfter time.Duration
	// LastStdout and LastStderr are the end of the standard output and the standard error of the call's program.
	LastStdout, LastStderr string
	// Cause is the failure that led to it, or nil.
	Cause *Failure
	Raw   *belayv1.Failure
}

func newFailure(raw *belayv1.Failure) *Failure {
	if raw == nil {
		return nil
	}
	return &Failure{
		Class:      enumWord(raw.ErrorClass, "ERROR_CLASS_"),
		Message:    raw.Message,
		Reason:     raw.Reason,
		Retryable:  raw.Retryable,
		Metadata:   raw.Metadata,
		RetryAfter: fromDuration(raw.RetryAfter),
		LastStdout: raw.GetLastOutput().GetStdout(),
		LastStderr: raw.GetLastOutput().GetStderr(),
		Cause:      newFailure(raw.Cause),
		Raw:        raw,
	}
}

// Waiting is the reason for which an execution or a step waits.
type Waiting struct {
	// Kind is the kind of the wait, such as APPROVAL, SIGNAL or FORM.
	Kind string
	// Who is the party or the event that ends the wait, in words.
	Who string
	// BeginTime is when the wait began; UntilTime when it ends or fails.
	BeginTime, UntilTime time.Time
	// NextCommand is the command to type to continue.
	NextCommand string
	Raw         *belayv1.WaitingReason
}

func newWaiting(raw *belayv1.WaitingReason) *Waiting {
	if raw == nil {
		return nil
	}
	return &Waiting{
		Kind:        enumWord(raw.Kind, "KIND_"),
		Who:         raw.Who,
		BeginTime:   fromTime(raw.BeginTime),
		UntilTime:   fromTime(raw.UntilTime),
		NextCommand: raw.NextCommand,
		Raw:         raw,
	}
}

// Totals are the numbers of an execution's steps: of all, and of those that have ended in each state.
type Totals struct{ Total, Completed, Failed, Skipped, Cancelled int }

// ExecutionInfo is an execution as it was when the server answered.
type ExecutionInfo struct {
	// Name is namespaces/*/executions/*, ID its last part.
	Name, ID string
	// UID is a random id: an execution that was deleted and created again under the same name has another.
	UID string
	// State is the state, such as RUNNING or COMPLETED.
	State  string
	PlanID string
	Labels map[string]string
	// Workspace is the directory that its tools are confined to; empty when the tool runner made one, whose id is MadeFolder.
	Workspace, MadeFolder string
	// Principal is the one that started it.
	Principal string
	// ETag changes whenever the execution does; changes take it as an option.
	ETag string
	// LastSequence is the number of its last event.
	LastSequence int64
	// PlanRevision is how often its plan was changed since it began.
	PlanRevision int
	// The times of its creation, its start, its end, and by which it has to end.
	CreateTime, StartTime, EndTime, DeadlineTime time.Time
	// Failure is the failure of the first step that failed, or nil.
	Failure *Failure
	// Waiting are the reasons for which it waits; empty when it has ended.
	Waiting []*Waiting
	// Totals are the numbers of its steps.
	Totals Totals
	// Inputs are the values of its plan's inputs, and Outputs what its plan declares; absent in a list.
	Inputs, Outputs Value
	// OutputsFailure is the reason for which an execution that has ended has no outputs, although its plan declares some.
	OutputsFailure *Failure
	Raw            *belayv1.Execution
}

func newExecutionInfo(raw *belayv1.Execution) *ExecutionInfo {
	info := &ExecutionInfo{
		Name:         raw.Name,
		ID:           lastPart(raw.Name),
		UID:          raw.Uid,
		State:        enumWord(raw.State, "STATE_"),
		PlanID:       raw.PlanId,
		Labels:       raw.Labels,
		Workspace:    raw.Workspace,
		MadeFolder:   raw.MadeFolder,
		Principal:    raw.Principal,
		ETag:         raw.Etag,
		LastSequence: int64(raw.LastSequence),
		PlanRevision: int(raw.PlanRevision),
		CreateTime:   fromTime(raw.CreateTime),
		StartTime:    fromTime(raw.StartTime),
		EndTime:      fromTime(raw.EndTime),
		DeadlineTime: fromTime(raw.DeadlineTime),
		Failure:      newFailure(raw.Failure),
		Totals: Totals{
			int(raw.GetTotals().GetTotal()), int(raw.GetTotals().GetCompleted()), int(raw.GetTotals().GetFailed()),
			int(raw.GetTotals().GetSkipped()), int(raw.GetTotals().GetCancelled()),
		},
		Inputs:         fromPayload(raw.Inputs),
		Outputs:        fromPayload(raw.Outputs),
		OutputsFailure: newFailure(raw.OutputsFailure),
		Raw:            raw,
	}
	for _, one := range raw.Waiting {
		info.Waiting = append(info.Waiting, newWaiting(one))
	}
	return info
}

// Ended reports whether the execution has ended. One that has ended continues only when it is retried.
func (i *ExecutionInfo) Ended() bool { return ended[i.State] }

// Succeeded reports whether the execution has ended COMPLETED.
func (i *ExecutionInfo) Succeeded() bool { return i.State == "COMPLETED" }

// StepInfo is a step of an execution as it was when the server answered.
type StepInfo struct {
	// Name is namespaces/*/executions/*/steps/*.
	Name string
	// ID is that of the step in the plan; of an entry of a list, STEP~0 and so on.
	ID    string
	Title string
	// State is the state, such as RUNNING or COMPLETED.
	State string
	// Attempt is the number of the current or last attempt, from 1; 0 before the first.
	Attempt, MaxAttempts int
	StartTime, EndTime   time.Time
	// Output is the output; absent when it has none or was not asked for (Full).
	Output Value
	// OutputBytes is the size of the output.
	OutputBytes int64
	// Failure is the last failure, or nil.
	Failure *Failure
	// SkipReason is the reason for which it was skipped, such as DEPENDENCY_FAILED, and SkippedBecause the step that caused it; empty when it was not skipped.
	SkipReason, SkippedBecause string
	// Waiting is the reason for which it waits, or nil.
	Waiting *Waiting
	// Approvals are the names of the approvals it waits for.
	Approvals []string
	Raw       *belayv1.Step
}

func newStepInfo(raw *belayv1.Step) *StepInfo {
	return &StepInfo{
		Name:           raw.Name,
		ID:             raw.StepId,
		Title:          raw.Title,
		State:          enumWord(raw.State, "STATE_"),
		Attempt:        int(raw.Attempt),
		MaxAttempts:    int(raw.MaxAttempts),
		StartTime:      fromTime(raw.StartTime),
		EndTime:        fromTime(raw.EndTime),
		Output:         fromPayload(raw.Output),
		OutputBytes:    int64(raw.OutputBytes),
		Failure:        newFailure(raw.Failure),
		SkipReason:     enumWord(raw.SkipReason, "SKIP_REASON_"),
		SkippedBecause: raw.SkippedBecause,
		Waiting:        newWaiting(raw.Waiting),
		Approvals:      raw.Approvals,
		Raw:            raw,
	}
}

// Artifact is a product of an execution: the output of a step (OUTPUT), or a file that a call committed (FILE).
type Artifact struct {
	// Name is namespaces/*/executions/*/artifacts/*.
	Name string
	// Kind is OUTPUT or FILE.
	Kind string
	// StepID is the step that made it.
	StepID string
	// Sequence is the number of the event that made it.
	Sequence   int64
	CreateTime time.Time
	MediaType  string
	SizeBytes  int64
	// Digest is `sha256:` over the content; `hmac-sha256:` for an output of more than 32 KiB.
	Digest string
	// DerivesFrom are the names of the artifacts that it derives from.
	DerivesFrom []string
	// Path is the path in the workspace, and Change how it changed (CREATED, MODIFIED, DELETED), for a FILE.
	Path, Change string
	Raw          *belayv1.Artifact
}

func newArtifact(raw *belayv1.Artifact) *Artifact {
	return &Artifact{
		Name:        raw.Name,
		Kind:        enumWord(raw.Kind, "KIND_"),
		StepID:      raw.StepId,
		Sequence:    int64(raw.Sequence),
		CreateTime:  fromTime(raw.CreateTime),
		MediaType:   raw.MediaType,
		SizeBytes:   int64(raw.SizeBytes),
		Digest:      raw.Digest,
		DerivesFrom: raw.DerivesFrom,
		Path:        raw.Path,
		Change:      enumWord(raw.Change, "KIND_"),
		Raw:         raw,
	}
}

// Event is an event of an execution, as [Execution.Events] yields it.
//
// Kind is the name of a field of belayv1.ExecutionEvent's kind, such as step_completed, and Detail the message of that field. Two kinds are the client's:
// `reset` (Sequence 0) says that the server cannot continue from the cursor, so the reader forgets what it knows and all events follow from the first;
// `unknown` is a kind of a newer server that can be skipped.
type Event struct {
	Kind string
	// Sequence is 1, 2, 3, … without gaps in one execution; 0 for live output and for a reset, which are not stored.
	Sequence int64
	// StepID is the step it is about; empty when it is about the execution.
	StepID string
	// Attempt is the attempt it is about, from 1; 0 for a step that never started.
	Attempt int
	// Time is when it was recorded.
	Time time.Time
	// Actor is the principal on whose behalf it happened; empty for what Belay decided itself.
	Actor string
	// Cursor is the position after this event, which [After] takes, also in another process.
	Cursor string
	// Execution is namespaces/*/executions/*, and UID its random id.
	Execution, UID string
	// ResetReason is that of a reset: LOST or TOO_OLD.
	ResetReason string
	// Detail is the message of the kind; nil for an unknown kind.
	Detail proto.Message
	// Raw is the event; nil for a reset.
	Raw *belayv1.ExecutionEvent
}

// ID returns the globally unique id of a stored event: the execution's uid, a dot, and the sequence.
func (e *Event) ID() string { return e.UID + "." + itoa(e.Sequence) }

// Failure returns the failure that the event is about, or nil.
func (e *Event) Failure() *Failure {
	if e.Detail == nil {
		return nil
	}
	message := e.Detail.ProtoReflect()
	field := message.Descriptor().Fields().ByName("failure")
	if field == nil || field.Kind() != protoreflect.MessageKind || !message.Has(field) {
		return nil
	}
	raw, _ := message.Get(field).Message().Interface().(*belayv1.Failure)
	return newFailure(raw)
}

// Text returns the output of a program, for live output (tool_call_output); empty otherwise.
func (e *Event) Text() string {
	if output := e.Raw.GetToolCallOutput(); output != nil {
		return output.Text
	}
	return ""
}

// Removed is an execution that a watch no longer shows.
type Removed struct {
	// Name is namespaces/*/executions/*.
	Name string
	// Deleted says that it was deleted; otherwise the filter leaves it out now.
	Deleted bool
}

// ExecutionUpdate is a message of a watch of executions. Kind says which one:
//
//   - changed: Execution is one that matches, in its current state. It may come again without a change;
//   - removed: Removed is one that was deleted or matches no longer;
//   - listed: all executions have come that there were; what follows happens now. After a reset, and in a watch from the beginning, what has not come until now
//     is no longer there;
//   - reset: the watch starts again from the beginning: forget what you know.
type ExecutionUpdate struct {
	Kind      string
	Execution *ExecutionInfo
	Removed   *Removed
	// Cursor is the position after this message, which [After] takes; empty while the first list is not complete.
	Cursor string
	// ResetReason is that of a reset: LOST, TOO_OLD or INTERRUPTED (before the first list was complete).
	ResetReason string
}

// PathChange is the change of one path, as an approval shows it before it is made.
type PathChange struct {
	// Path is the path in the workspace; `hex:` and digits when it is not UTF-8.
	Path string
	// Kind is CREATED, MODIFIED or DELETED.
	Kind string
	// Flags are reasons to look carefully, such as `executable` or `protected`.
	Flags []string
	// Index is the place among the changes of the approval, the gravest first, from 0.
	Index int
	Raw   *belayv1.PathChange
}

func newPathChange(raw *belayv1.PathChange) *PathChange {
	return &PathChange{Path: raw.Path, Kind: enumWord(raw.Kind, "KIND_"), Flags: raw.Flags, Index: int(raw.Index), Raw: raw}
}

// Form is a form that a person answers.
type Form struct {
	// Title is the question, in one line.
	Title string
	// Description is the information that a person needs to answer.
	Description string
	// Schema is the JSON Schema that the answer has to match.
	Schema Value
}

func lastPart(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }
