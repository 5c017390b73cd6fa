package belay

import "time"

// options are what the options of all methods set; nil means that it is not given.
type options struct {
	key, etag, id, workspace, model *string
	reason                          string
	fromStep                        *string
	startPaused                     bool

	inputs       any
	labels       map[string]string
	approvalMode *string
	startTime    *time.Time
	stepTimeout  *time.Duration

	afterTurn      *int32
	onCurrentFiles bool

	kill         bool
	discardCalls bool
	resumeTime   *time.Time
	skipFailed   bool
	plan         any
	revision     *int
	result       any
	hasResult    bool

	full            bool
	pageSize        int
	orderBy         string
	includeChildren bool
	step            *string
	kind            *string
	pathPrefix      string
	execution       *string
	states          []string
	idPrefix        *string
	after           string
	output          bool
	offset          int64
}

func gather[O any](apply func(O, *options), given []O) *options {
	o := &options{}
	for _, one := range given {
		apply(one, o)
	}
	return o
}

// The interfaces of options: which option goes with which method is checked by the compiler.
type (
	// StartOption is an option of [Client.Start].
	StartOption interface{ start(*options) }
	// ForkOption is an option of [Execution.Fork].
	ForkOption interface{ fork(*options) }
	// CancelOption is an option of [Execution.Cancel].
	CancelOption interface{ cancel(*options) }
	// PauseOption is an option of [Execution.Pause].
	PauseOption interface{ pause(*options) }
	// RetryOption is an option of [Execution.Retry].
	RetryOption interface{ retry(*options) }
	// UpdatePlanOption is an option of [Execution.UpdatePlan].
	UpdatePlanOption interface{ updatePlan(*options) }
	// ResolveOption is an option of [Execution.Resolve].
	ResolveOption interface{ resolve(*options) }
	// StepOption is an option of [Execution.RetryStep], [Execution.SkipStep] and [Execution.SetStepOutput].
	StepOption interface{ changeStep(*options) }
	// TagOption is an option of [Execution.Resume] and [Execution.Delete].
	TagOption interface{ tag(*options) }
	// KeyOption is an option of [Execution.Signal] and of the decisions of an [Approval].
	KeyOption interface{ keyed(*options) }
	// ExecutionsOption is an option of [Client.Executions].
	ExecutionsOption interface{ executions(*options) }
	// WatchOption is an option of [Client.WatchExecutions].
	WatchOption interface{ watch(*options) }
	// GetOption is an option of [Execution.Get].
	GetOption interface{ get(*options) }
	// StepsOption is an option of [Execution.Steps].
	StepsOption interface{ steps(*options) }
	// ArtifactsOption is an option of [Execution.Artifacts].
	ArtifactsOption interface{ artifacts(*options) }
	// EventsOption is an option of [Execution.Events].
	EventsOption interface{ events(*options) }
	// ApprovalsOption is an option of [Approvals.List].
	ApprovalsOption interface{ approvals(*options) }
	// WatchApprovalsOption is an option of [Approvals.Watch].
	WatchApprovalsOption interface{ watchApprovals(*options) }
	// ChangesOption is an option of [Approval.Changes].
	ChangesOption interface{ changes(*options) }
	// BlobOption is an option of [Execution.StreamBlob].
	BlobOption interface{ blob(*options) }
)

type keyOption string

func (k keyOption) set(o *options)        { o.key = (*string)(&k) }
func (k keyOption) start(o *options)      { k.set(o) }
func (k keyOption) fork(o *options)       { k.set(o) }
func (k keyOption) cancel(o *options)     { k.set(o) }
func (k keyOption) pause(o *options)      { k.set(o) }
func (k keyOption) retry(o *options)      { k.set(o) }
func (k keyOption) updatePlan(o *options) { k.set(o) }
func (k keyOption) resolve(o *options)    { k.set(o) }
func (k keyOption) changeStep(o *options) { k.set(o) }
func (k keyOption) tag(o *options)        { k.set(o) }
func (k keyOption) keyed(o *options)      { k.set(o) }

// Key names a request: the same key with the same request is one change, however often it is sent. Without it the client makes a key, so that its own
// repetitions are safe.
func Key(key string) keyOption { return keyOption(key) }

type etagOption string

func (e etagOption) set(o *options)        { o.etag = (*string)(&e) }
func (e etagOption) cancel(o *options)     { e.set(o) }
func (e etagOption) pause(o *options)      { e.set(o) }
func (e etagOption) retry(o *options)      { e.set(o) }
func (e etagOption) updatePlan(o *options) { e.set(o) }
func (e etagOption) resolve(o *options)    { e.set(o) }
func (e etagOption) changeStep(o *options) { e.set(o) }
func (e etagOption) tag(o *options)        { e.set(o) }

// ETag has the change refused with [Aborted] when the execution has changed since this tag ([ExecutionInfo].ETag) was read.
func ETag(etag string) etagOption { return etagOption(etag) }

type reasonOption string

func (r reasonOption) fork(o *options)       { o.reason = string(r) }
func (r reasonOption) retry(o *options)      { o.reason = string(r) }
func (r reasonOption) updatePlan(o *options) { o.reason = string(r) }
func (r reasonOption) resolve(o *options)    { o.reason = string(r) }
func (r reasonOption) changeStep(o *options) { o.reason = string(r) }

// Reason explains a change to whoever reads the execution later, in at most 1,024 bytes.
func Reason(reason string) reasonOption { return reasonOption(reason) }

type pausedOption struct{}

func (pausedOption) start(o *options) { o.startPaused = true }
func (pausedOption) fork(o *options)  { o.startPaused = true }
func (pausedOption) retry(o *options) { o.startPaused = true }

// StartPaused has the execution wait for [Execution.Resume] before it runs anything.
func StartPaused() pausedOption { return pausedOption{} }

type newExecutionOption func(*options)

func (f newExecutionOption) start(o *options) { f(o) }
func (f newExecutionOption) fork(o *options)  { f(o) }

// ID is the id of the new execution; without it the server makes one.
func ID(id string) newExecutionOption { return func(o *options) { o.id = &id } }

// Workspace is the absolute path of a directory on the server's machine; without it the execution gets a new one.
func Workspace(path string) newExecutionOption { return func(o *options) { o.workspace = &path } }

type startOption func(*options)

func (f startOption) start(o *options) { f(o) }

// Inputs are the values of the plan's inputs: a map, a struct, or JSON as json.RawMessage.
func Inputs(inputs any) startOption { return func(o *options) { o.inputs = inputs } }

// Labels are put on the execution, for filters.
func Labels(labels map[string]string) startOption { return func(o *options) { o.labels = labels } }

// ApprovalMode says what becomes of calls that need an approval: WAIT (the default), FAIL, SKIP or AUTO.
func ApprovalMode(mode string) startOption { return func(o *options) { o.approvalMode = &mode } }

// StartTime has the execution begin then.
func StartTime(time time.Time) startOption { return func(o *options) { o.startTime = &time } }

// StepTimeout bounds each step that has no timeout of its own.
func StepTimeout(timeout time.Duration) startOption {
	return func(o *options) { o.stepTimeout = &timeout }
}

type fromStepOption string

func (f fromStepOption) fork(o *options)  { o.fromStep = (*string)(&f) }
func (f fromStepOption) retry(o *options) { o.fromStep = (*string)(&f) }

// FromStep runs this step again, by its id, with all that depends on it.
func FromStep(step string) fromStepOption { return fromStepOption(step) }

type forkOption func(*options)

func (f forkOption) fork(o *options) { f(o) }

// AfterTurn continues the conversation of the step that [FromStep] names after this turn of its model, counted from 1.
func AfterTurn(turn int) forkOption {
	number := int32Of(turn)
	return func(o *options) { o.afterTurn = &number }
}

// Model has the steps that run again use this model.
func Model(model string) forkOption { return func(o *options) { o.model = &model } }

// OnCurrentFiles has the fork work on the files as they are now.
func OnCurrentFiles() forkOption { return func(o *options) { o.onCurrentFiles = true } }

type cancelOption func(*options)

func (f cancelOption) cancel(o *options) { f(o) }

// Kill ends running calls at once, and nothing is undone.
func Kill() cancelOption { return func(o *options) { o.kill = true } }

type pauseOption func(*options)

func (f pauseOption) pause(o *options) { f(o) }

// DiscardCalls also kills running calls, which run again later.
func DiscardCalls() pauseOption { return func(o *options) { o.discardCalls = true } }

// ResumeTime is when the execution resumes automatically.
func ResumeTime(time time.Time) pauseOption { return func(o *options) { o.resumeTime = &time } }

type retryOption func(*options)

func (f retryOption) retry(o *options) { f(o) }

// SkipFailed skips what failed instead of running it again.
func SkipFailed() retryOption { return func(o *options) { o.skipFailed = true } }

// WithPlan takes the place of the plan; what is kept cannot change in it. It is what [Client.Start] takes.
func WithPlan(plan any) retryOption { return func(o *options) { o.plan = plan } }

type updatePlanOption func(*options)

func (f updatePlanOption) updatePlan(o *options) { f(o) }

// Revision is the [ExecutionInfo].PlanRevision that the plan was made from: with another one the change is refused.
func Revision(revision int) updatePlanOption { return func(o *options) { o.revision = &revision } }

type resolveOption func(*options)

func (f resolveOption) resolve(o *options) { f(o) }

// StepResult is the result of a step that is resolved as COMPLETED: a JSON value of at most 32 KiB.
func StepResult(result any) resolveOption {
	return func(o *options) { o.result, o.hasResult = result, true }
}

type pageSizeOption int

func (p pageSizeOption) executions(o *options) { o.pageSize = int(p) }
func (p pageSizeOption) steps(o *options)      { o.pageSize = int(p) }
func (p pageSizeOption) artifacts(o *options)  { o.pageSize = int(p) }
func (p pageSizeOption) approvals(o *options)  { o.pageSize = int(p) }
func (p pageSizeOption) changes(o *options)    { o.pageSize = int(p) }

// PageSize is the number of entries that the server sends at a time; 0 leaves it to the server.
func PageSize(size int) pageSizeOption { return pageSizeOption(size) }

type fullOption struct{}

func (fullOption) get(o *options)   { o.full = true }
func (fullOption) steps(o *options) { o.full = true }

// Full asks for inputs and outputs too, which are left out otherwise.
func Full() fullOption { return fullOption{} }

type childrenOption struct{}

func (childrenOption) executions(o *options) { o.includeChildren = true }
func (childrenOption) watch(o *options)      { o.includeChildren = true }

// IncludeChildren shows also the executions that carry out the plans of steps.
func IncludeChildren() childrenOption { return childrenOption{} }

type executionsOption string

func (e executionsOption) executions(o *options) { o.orderBy = string(e) }

// OrderBy is create_time or end_time, with ` desc` for the latest first.
func OrderBy(order string) executionsOption { return executionsOption(order) }

type artifactsOption func(*options)

func (f artifactsOption) artifacts(o *options) { f(o) }

// OfStep shows the artifacts of one step, by its id.
func OfStep(step string) artifactsOption { return func(o *options) { o.step = &step } }

// OfKind shows the artifacts of one kind: OUTPUT or FILE.
func OfKind(kind string) artifactsOption { return func(o *options) { o.kind = &kind } }

// PathPrefix shows the files whose paths begin so.
func PathPrefix(prefix string) artifactsOption { return func(o *options) { o.pathPrefix = prefix } }

type afterOption string

func (a afterOption) events(o *options)         { o.after = string(a) }
func (a afterOption) watch(o *options)          { o.after = string(a) }
func (a afterOption) watchApprovals(o *options) { o.after = string(a) }

// After is the cursor of an event or an update, also one of another process: what came after it comes. An empty one means from the beginning.
func After(cursor string) afterOption { return afterOption(cursor) }

type eventsOption func(*options)

func (f eventsOption) events(o *options) { f(o) }

// WithOutput shows also what programs print while they run (tool_call_output, sequence 0), which is not stored and may be lost.
func WithOutput() eventsOption { return func(o *options) { o.output = true } }

type ofExecutionOption string

func (e ofExecutionOption) approvals(o *options)      { o.execution = (*string)(&e) }
func (e ofExecutionOption) watchApprovals(o *options) { o.execution = (*string)(&e) }

// OfExecution shows the approvals of one execution, by its id or name.
func OfExecution(execution string) ofExecutionOption { return ofExecutionOption(execution) }

type approvalsOption func(*options)

func (f approvalsOption) approvals(o *options) { f(o) }

// InStates shows the approvals in these states; without any, in all. The default is PENDING.
func InStates(states ...string) approvalsOption { return func(o *options) { o.states = states } }

// IDPrefix shows the approvals whose ids begin so.
func IDPrefix(prefix string) approvalsOption { return func(o *options) { o.idPrefix = &prefix } }

type blobOption int64

func (b blobOption) blob(o *options) { o.offset = int64(b) }

// Offset is the number of bytes to leave out at the beginning.
func Offset(bytes int64) blobOption { return blobOption(bytes) }
