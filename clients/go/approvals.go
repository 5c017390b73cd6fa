package belay

import (
	"context"
	"iter"
	"strings"
	"time"

	"belay.dev/go/belayv1"
)

// Approval is an approval as it was when the server answered: may this call run, may this effect be committed, or how is this form answered?
//
// Approve, Deny, Skip and Answer send the digest of what this value shows, so that nothing else can be decided by it. The error is [FailedPrecondition] when
// the subject has another digest (DIGEST_MISMATCH) or was decided before (ALREADY_DECIDED), and [PermissionDenied] when the caller may not decide. They return
// the approval after the decision.
type Approval struct {
	// Name is namespaces/*/approvals/*, ID its last part.
	Name, ID string
	// State is the state, such as PENDING, APPROVED, DENIED or ANSWERED.
	State string
	// Kind is that of its subject: CALL (before it runs), EFFECT (it has run, and nothing is committed), or FORM.
	Kind string
	// Execution is the execution that waits, namespaces/*/executions/*, and StepID the step.
	Execution, StepID string
	// Tool is the tool's name; empty for a form.
	Tool string
	// Operation is the operation of the call, in one line; the title of a form.
	Operation string
	// Risk is the harm that it may do: LOW, MEDIUM or HIGH; empty for a form.
	Risk string
	// Digest is that of its subject, `sha256:…`, which a decision sends.
	Digest string
	// RequestedBy is the principal who started the execution.
	RequestedBy string
	// RequestReason is the plan's reason for the call. It explains, and authorizes nothing.
	RequestReason string
	// Rule is the policy's rule that requires the approval; empty for a form.
	Rule string
	// DecidedBy is the principal that has decided, and DecideReason its reason; empty while it is pending.
	DecidedBy, DecideReason string
	// CreateTime is the time of its creation, and ExpireTime that at which it expires, which counts as denied; the zero time means never.
	CreateTime, ExpireTime time.Time
	// Created, Modified and Deleted are the numbers of paths that the call would change.
	Created, Modified, Deleted int
	// Form is the form, once Show has read it; nil for what is no form.
	Form *Form
	// Headline is the command, or the tool and its arguments, in a few lines, once Show has read it.
	Headline string
	Raw      *belayv1.Approval

	transport *transport
}

func newApproval(t *transport, raw *belayv1.Approval) *Approval {
	approval := &Approval{
		Name:          raw.Name,
		ID:            lastPart(raw.Name),
		State:         enumWord(raw.State, "STATE_"),
		Kind:          enumWord(raw.Kind, "KIND_"),
		Execution:     raw.Execution,
		StepID:        raw.StepId,
		Tool:          raw.Tool,
		Operation:     raw.Operation,
		Risk:          enumWord(raw.Risk, "RISK_"),
		Digest:        raw.SubjectDigest,
		RequestedBy:   raw.RequestedBy,
		RequestReason: raw.RequestReason,
		Rule:          raw.GetDecision().GetRule(),
		DecidedBy:     raw.DecidedBy,
		DecideReason:  raw.DecideReason,
		CreateTime:    fromTime(raw.CreateTime),
		ExpireTime:    fromTime(raw.ExpireTime),
		Created:       int(raw.GetEffect().GetCreated()),
		Modified:      int(raw.GetEffect().GetModified()),
		Deleted:       int(raw.GetEffect().GetDeleted()),
		Headline:      raw.GetPreview().GetHeadline(),
		Raw:           raw,
		transport:     t,
	}
	if form := raw.Form; form != nil {
		approval.Form = &Form{Title: form.Title, Description: form.Description, Schema: Value{json: form.Schema}}
	}
	return approval
}

// IsPending reports whether it waits for a decision.
func (a *Approval) IsPending() bool { return a.State == "PENDING" }

// Show returns the approval with all that a person needs: its preview, its subject, or its form. Lists leave them out.
func (a *Approval) Show(ctx context.Context) (*Approval, error) {
	return getApproval(ctx, a.transport, a.Name)
}

func getApproval(ctx context.Context, t *transport, name string) (*Approval, error) {
	request := &belayv1.GetApprovalRequest{Name: name, View: belayv1.ApprovalView_APPROVAL_VIEW_FULL}
	answer, err := unary[*belayv1.Approval](ctx, t, "ApprovalService/GetApproval", request)
	if err != nil {
		return nil, err
	}
	return newApproval(t, answer), nil
}

// Changes yields every path that the call would change, the gravest first, from the exact bytes that the decision is about.
func (a *Approval) Changes(ctx context.Context, opts ...ChangesOption) iter.Seq2[*PathChange, error] {
	o := gather(ChangesOption.changes, opts)
	return paged(func(token string) ([]*PathChange, string, error) {
		request := &belayv1.ListApprovalChangesRequest{Name: a.Name, PageSize: int32Of(o.pageSize), PageToken: token}
		page, err := unary[*belayv1.ListApprovalChangesResponse](ctx, a.transport, "ApprovalService/ListApprovalChanges", request)
		if err != nil {
			return nil, "", err
		}
		return mapped(page.Changes, newPathChange), page.NextPageToken, nil
	})
}

// Diff returns the difference in one file, by the index of its change, as a unified diff; empty when there is no text to show. The error is
// [FailedPrecondition] once the call no longer waits (CONTENTS_GONE).
func (a *Approval) Diff(ctx context.Context, index int) (string, error) {
	parts := paged(func(token string) ([]string, string, error) {
		request := &belayv1.GetApprovalChangeRequest{Name: a.Name, Index: int32Of(index), PageToken: token}
		page, err := unary[*belayv1.GetApprovalChangeResponse](ctx, a.transport, "ApprovalService/GetApprovalChange", request)
		if err != nil {
			return nil, "", err
		}
		return []string{page.GetChange().GetUnified()}, page.NextPageToken, nil
	})
	all, err := Collect(parts)
	return strings.Join(all, ""), err
}

// Approve approves it, once. The plan's author sees the note (at most 2,000 characters; it may be empty).
func (a *Approval) Approve(ctx context.Context, note string, opts ...KeyOption) (*Approval, error) {
	return a.decide(ctx, belayv1.Decision_DECISION_APPROVE, note, opts)
}

// Deny denies it: the step fails, and the plan's author sees the reason, which must not be empty.
func (a *Approval) Deny(ctx context.Context, reason string, opts ...KeyOption) (*Approval, error) {
	if reason == "" {
		return nil, usage("reason", "`reason` is empty: say for the plan's author why it is denied.")
	}
	return a.decide(ctx, belayv1.Decision_DECISION_DENY, reason, opts)
}

// Skip denies it so that the step is skipped instead of failing. The reason may be empty.
func (a *Approval) Skip(ctx context.Context, reason string, opts ...KeyOption) (*Approval, error) {
	return a.decide(ctx, belayv1.Decision_DECISION_SKIP, reason, opts)
}

// Answer answers a form with a JSON value that matches its schema. The error is [InvalidArgument] with the JSON pointer of each problem.
func (a *Approval) Answer(ctx context.Context, answer any, opts ...KeyOption) (*Approval, error) {
	payload, err := toPayload(answer, "answer")
	if err != nil {
		return nil, err
	}
	request := &belayv1.AnswerFormRequest{
		Name: a.Name, SubjectDigest: a.Digest, Answer: payload, RequestId: requestID(gather(KeyOption.keyed, opts).key),
	}
	answered, err := unary[*belayv1.Approval](ctx, a.transport, "ApprovalService/AnswerForm", request)
	if err != nil {
		return nil, err
	}
	return newApproval(a.transport, answered), nil
}

func (a *Approval) decide(ctx context.Context, decision belayv1.Decision, reason string, opts []KeyOption) (*Approval, error) {
	request := &belayv1.DecideApprovalRequest{
		Name: a.Name, SubjectDigest: a.Digest, Decision: decision, Reason: reason, RequestId: requestID(gather(KeyOption.keyed, opts).key),
	}
	decided, err := unary[*belayv1.Approval](ctx, a.transport, "ApprovalService/DecideApproval", request)
	if err != nil {
		return nil, err
	}
	return newApproval(a.transport, decided), nil
}

// ApprovalUpdate is a message of a watch of approvals. Kind says which one:
//
//   - changed: Approval is an approval in its current state;
//   - listed: all approvals have come that there were; what follows happens now;
//   - reset: the watch starts again from the beginning: forget what you know.
type ApprovalUpdate struct {
	Kind     string
	Approval *Approval
	// Cursor is the position after this message, which [After] takes; empty while the first list is not complete.
	Cursor string
	// ResetReason is that of a reset: LOST, TOO_OLD or INTERRUPTED (before the first list was complete).
	ResetReason string
}

// Approvals are the approvals and forms of a namespace.
type Approvals struct{ transport *transport }

// Get returns one approval with all that a person needs, by its id or name.
func (a *Approvals) Get(ctx context.Context, approval string) (*Approval, error) {
	name, err := approvalName(approval, a.transport.settings.namespace)
	if err != nil {
		return nil, err
	}
	return getApproval(ctx, a.transport, name)
}

// List yields the approvals in the states of [InStates], pending ones first; pages are asked for as they are needed.
func (a *Approvals) List(ctx context.Context, opts ...ApprovalsOption) iter.Seq2[*Approval, error] {
	o := gather(ApprovalsOption.approvals, append([]ApprovalsOption{InStates("PENDING")}, opts...))
	execution, err := a.execution(o.execution)
	if err != nil {
		return failed[*Approval](err)
	}
	var states []belayv1.Approval_State
	for _, word := range o.states {
		state, err := enumNumber(belayv1.Approval_State(0), word, "STATE_", "states")
		if err != nil {
			return failed[*Approval](err)
		}
		states = append(states, belayv1.Approval_State(state))
	}
	return paged(func(token string) ([]*Approval, string, error) {
		request := &belayv1.ListApprovalsRequest{
			Parent: namespaceOf(execution, a.transport.settings.namespace), PageSize: int32Of(o.pageSize), PageToken: token, States: states,
			Execution: optional(execution), IdPrefix: o.idPrefix,
		}
		page, err := unary[*belayv1.ListApprovalsResponse](ctx, a.transport, "ApprovalService/ListApprovals", request)
		if err != nil {
			return nil, "", err
		}
		return mapped(page.Approvals, func(raw *belayv1.Approval) *Approval { return newApproval(a.transport, raw) }), page.NextPageToken, nil
	})
}

// Watch yields the approvals: all in their current state, then each that changes, until its context ends.
func (a *Approvals) Watch(ctx context.Context, opts ...WatchApprovalsOption) iter.Seq2[*ApprovalUpdate, error] {
	o := gather(WatchApprovalsOption.watchApprovals, opts)
	return watchStream(ctx, a.transport, "ApprovalService/WatchApprovals", func() (watcher[ApprovalUpdate], error) {
		execution, err := a.execution(o.execution)
		if err != nil {
			return nil, err
		}
		settings := a.transport.settings
		state := stateWatch{cursor: o.after, heartbeat: settings.heartbeat}
		parent := namespaceOf(execution, settings.namespace)
		return &approvalsWatch{stateWatch: state, transport: a.transport, parent: parent, execution: execution}, nil
	})
}

// execution returns the name of the execution that was given; empty without one.
func (a *Approvals) execution(given *string) (string, error) {
	if given == nil {
		return "", nil
	}
	return executionName(*given, a.transport.settings.namespace)
}
