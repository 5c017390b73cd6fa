package belay

import (
	"errors"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"belay.dev/go/belayv1"
)

// Watches without their connections: which request continues a watch, and what its messages mean.

// errGap says that an event is missing in the stream: the watch has to connect again.
var errGap = errors.New("an event is missing in the stream")

// watcher is a watch whose items are of one type.
type watcher[T any] interface {
	// request returns the request that continues the watch.
	request() proto.Message
	// take returns the item of a message, or nil for one that has nothing for the reader.
	take(message proto.Message) (*T, error)
	// restart returns the item that says that a new connection begins with everything again; nil for none.
	restart() *T
	// isComplete says that the end of the stream was the end of the watch, and not a connection that was closed as if it were.
	isComplete() bool
}

// executionWatch is the watch of one execution. It yields each stored event once and in order. The server resumes after the cursor of the request; what it may
// send twice is dropped by its number, and a number that is missing is not accepted: the watch connects again at the last good cursor.
type executionWatch struct {
	name, cursor string
	output       bool
	heartbeat    time.Duration
	uid          string
	// last is the number of the last event; isCounting is false while it is not known.
	last          int64
	isCounting    bool
	snapshotLast  int64
	snapshotEnded bool
	gaps          int
	isFinished    bool
}

func newExecutionWatch(name, after string, output bool, heartbeat time.Duration) *executionWatch {
	return &executionWatch{name: name, cursor: after, output: output, heartbeat: heartbeat, isCounting: after == ""}
}

func (w *executionWatch) request() proto.Message {
	return &belayv1.WatchExecutionRequest{
		Name: w.name, IncludeEarlierEvents: true, HeartbeatInterval: durationpb.New(w.heartbeat), Cursor: w.cursor,
	}
}

func (w *executionWatch) take(received proto.Message) (event *Event, err error) {
	message := received.(*belayv1.WatchExecutionResponse)
	if message.Uid != "" {
		w.uid = message.Uid
	}
	switch content := message.Content.(type) {
	case *belayv1.WatchExecutionResponse_Reset_:
		w.last, w.isCounting, w.uid = 0, true, ""
		event = &Event{
			Kind: "reset", Cursor: orElse(message.Cursor, w.cursor), Execution: w.name, ResetReason: resetReason(content.Reset_), Detail: content.Reset_,
		}
	case *belayv1.WatchExecutionResponse_Snapshot:
		w.snapshotLast = content.Snapshot.LastSequence
		w.snapshotEnded = ended[enumWord(content.Snapshot.State, "STATE_")]
		w.uid = orElse(w.uid, content.Snapshot.Uid)
	case *belayv1.WatchExecutionResponse_Event:
		if event, err = w.next(message, content.Event); err != nil {
			return nil, err
		}
	}
	if message.Cursor != "" {
		w.cursor = message.Cursor
	}
	return event, nil
}

func (w *executionWatch) next(message *belayv1.WatchExecutionResponse, raw *belayv1.ExecutionEvent) (*Event, error) {
	kind, detail := kindOf(raw)
	if kind == "unknown" && !raw.SafeToSkip {
		return nil, contractError("UNKNOWN_EVENT_KIND",
			"The event %d of %s is of a kind that this client does not know and must not skip: upgrade the module belay.dev/go.", raw.Sequence, w.name)
	}
	event := &Event{
		Kind: kind, Sequence: raw.Sequence, StepID: raw.StepId, Attempt: int(raw.Attempt), Time: fromTime(raw.RecordTime), Actor: raw.GetActor().GetPrincipal(),
		Cursor: orElse(message.Cursor, w.cursor), Execution: w.name, UID: w.uid, Detail: detail, Raw: raw,
	}
	if raw.Ephemeral || raw.Sequence == 0 {
		if w.output {
			return event, nil
		}
		return nil, nil
	}
	if w.isCounting && raw.Sequence <= w.last {
		return nil, nil
	}
	if w.isCounting && raw.Sequence != w.last+1 {
		w.gaps++
		if w.gaps > 1 {
			return nil, contractError("EVENT_GAP",
				"The server leaves out events of %s: %d follows %d, also after a new connection.", w.name, raw.Sequence, w.last)
		}
		return nil, errGap
	}
	w.gaps = 0
	w.last, w.isCounting = raw.Sequence, true
	w.isFinished = kind == "execution_finished"
	return event, nil
}

// kindOf returns the name of the kind of an event and its message.
func kindOf(raw *belayv1.ExecutionEvent) (string, proto.Message) {
	message := raw.ProtoReflect()
	field := message.WhichOneof(message.Descriptor().Oneofs().ByName("kind"))
	if field == nil {
		return "unknown", nil
	}
	return string(field.Name()), message.Get(field).Message().Interface()
}

func (w *executionWatch) restart() *Event { return nil }

func (w *executionWatch) isComplete() bool {
	return w.isFinished || w.snapshotEnded && (!w.isCounting || w.last >= w.snapshotLast)
}

func resetReason(reset *belayv1.WatchReset) string { return enumWord(reset.Reason, "REASON_") }

// stateWatch is a watch that shows states: of executions, or of approvals. It never ends.
type stateWatch struct {
	cursor    string
	heartbeat time.Duration
	hasShown  bool
}

func (w *stateWatch) isComplete() bool { return false }

// isInterrupted says that a new connection starts from the beginning, although the reader has seen a part.
func (w *stateWatch) isInterrupted() bool {
	anew := w.hasShown && w.cursor == ""
	w.hasShown = w.hasShown && !anew
	return anew
}

// advance takes the cursor of a message. That of a reset counts even if it is empty: the one that was refused leads nowhere any more.
func (w *stateWatch) advance(cursor string, isReset bool) {
	if cursor != "" || isReset {
		w.cursor = cursor
	}
	w.hasShown = w.hasShown || !isReset
}

// executionsWatch is the watch of the executions of a namespace.
type executionsWatch struct {
	stateWatch
	parent, filter  string
	includeChildren bool
}

func (w *executionsWatch) request() proto.Message {
	return &belayv1.WatchExecutionsRequest{
		Parent: w.parent, Filter: w.filter, IncludeChildren: w.includeChildren, HeartbeatInterval: durationpb.New(w.heartbeat), Cursor: w.cursor,
	}
}

func (w *executionsWatch) take(received proto.Message) (*ExecutionUpdate, error) {
	message := received.(*belayv1.WatchExecutionsResponse)
	reset, isReset := message.Content.(*belayv1.WatchExecutionsResponse_Reset_)
	w.advance(message.Cursor, isReset)
	update := &ExecutionUpdate{Cursor: w.cursor}
	switch content := message.Content.(type) {
	case *belayv1.WatchExecutionsResponse_Reset_:
		update.Kind, update.ResetReason = "reset", resetReason(reset.Reset_)
	case *belayv1.WatchExecutionsResponse_Execution:
		update.Kind, update.Execution = "changed", newExecutionInfo(content.Execution)
	case *belayv1.WatchExecutionsResponse_Removed:
		update.Kind, update.Removed = "removed", &Removed{content.Removed.Name, content.Removed.Deleted}
	case *belayv1.WatchExecutionsResponse_Listed:
		update.Kind = "listed"
	default:
		return nil, nil
	}
	return update, nil
}

func (w *executionsWatch) restart() *ExecutionUpdate {
	if w.isInterrupted() {
		return &ExecutionUpdate{Kind: "reset", ResetReason: "INTERRUPTED"}
	}
	return nil
}

// approvalsWatch is the watch of the approvals of a namespace, or of one execution.
type approvalsWatch struct {
	stateWatch
	transport         *transport
	parent, execution string
}

func (w *approvalsWatch) request() proto.Message {
	return &belayv1.WatchApprovalsRequest{
		Parent: w.parent, Execution: optional(w.execution), HeartbeatInterval: durationpb.New(w.heartbeat), Cursor: w.cursor,
	}
}

func (w *approvalsWatch) take(received proto.Message) (*ApprovalUpdate, error) {
	message := received.(*belayv1.WatchApprovalsResponse)
	_, isReset := message.Content.(*belayv1.WatchApprovalsResponse_Reset_)
	w.advance(message.Cursor, isReset)
	update := &ApprovalUpdate{Cursor: w.cursor}
	switch content := message.Content.(type) {
	case *belayv1.WatchApprovalsResponse_Reset_:
		update.Kind, update.ResetReason = "reset", resetReason(content.Reset_)
	case *belayv1.WatchApprovalsResponse_Approval:
		update.Kind, update.Approval = "changed", newApproval(w.transport, content.Approval)
	case *belayv1.WatchApprovalsResponse_Listed:
		update.Kind = "listed"
	default:
		return nil, nil
	}
	return update, nil
}

func (w *approvalsWatch) restart() *ApprovalUpdate {
	if w.isInterrupted() {
		return &ApprovalUpdate{Kind: "reset", ResetReason: "INTERRUPTED"}
	}
	return nil
}

// optional returns a text for a field that is not sent when it is empty.
func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
