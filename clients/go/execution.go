package belay

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"belay.dev/go/belayv1"
)

const (
	// longestWait is the longest wait of one request.
	longestWait = 50 * time.Second
	// bytesSilence is how long a stream of bytes may be silent.
	bytesSilence = 30 * time.Second
)

// Execution is a handle of an execution, by which it is read, followed and changed. It holds no connection of its own, and any number of goroutines use it.
type Execution struct {
	transport *transport
	name      string
	info      atomic.Pointer[ExecutionInfo]
}

func newExecution(t *transport, name string, info *ExecutionInfo) *Execution {
	execution := &Execution{transport: t, name: name}
	execution.info.Store(info)
	return execution
}

// Name returns namespaces/*/executions/*.
func (e *Execution) Name() string { return e.name }

// ID returns the last part of the name.
func (e *Execution) ID() string { return lastPart(e.name) }

// Info returns the execution as this handle has last seen it; nil when it was never asked for. [Execution.Get] asks the server.
func (e *Execution) Info() *ExecutionInfo { return e.info.Load() }

// ask makes a call that answers with the execution, and keeps that.
func (e *Execution) ask(ctx context.Context, method string, request proto.Message) (*ExecutionInfo, error) {
	answer, err := unary[*belayv1.Execution](ctx, e.transport, "ExecutorService/"+method, request)
	if err != nil {
		return nil, err
	}
	info := newExecutionInfo(answer)
	e.info.Store(info)
	return info, nil
}

// Get returns the execution as it is now; with [Full] also its inputs and outputs, and in Raw its plan and steps.
func (e *Execution) Get(ctx context.Context, opts ...GetOption) (*ExecutionInfo, error) {
	view := belayv1.ExecutionView_EXECUTION_VIEW_BASIC
	if gather(GetOption.get, opts).full {
		view = belayv1.ExecutionView_EXECUTION_VIEW_FULL
	}
	return e.ask(ctx, "GetExecution", &belayv1.GetExecutionRequest{Name: e.name, View: view})
}

// Wait returns the execution once it has ended, in whatever state. After the deadline of ctx it returns a [WaitTimeoutError]; without one it waits as long as it
// takes. A server that is restarted meanwhile is waited for, for as long as [WithReconnectFor] says.
func (e *Execution) Wait(ctx context.Context) (*ExecutionInfo, error) {
	reconnectFor := e.transport.settings.reconnectFor
	for {
		longest, isBounded := longestWait, false
		deadline, hasDeadline := ctx.Deadline()
		if hasDeadline {
			// The server answers a little before the deadline, so that the error can say in which state the execution is.
			longest = min(longest, max(time.Until(deadline)*9/10, time.Millisecond))
		}
		// The margin is for the way, and for a restart in between.
		timeout := longest + reconnectFor + 5*time.Second
		if hasDeadline {
			isBounded = deadline.Before(time.Now().Add(timeout))
		}
		request := &belayv1.WaitExecutionRequest{Name: e.name, LongestWait: durationpb.New(longest)}
		answer, err := e.transport.callFor(ctx, "ExecutorService/WaitExecution", request, timeout, reconnectFor)
		switch {
		// The server ends the call at the deadline too, and may be the faster one.
		case err != nil && (ctx.Err() == context.DeadlineExceeded || isBounded && errors.Is(err, DeadlineExceeded)):
			return nil, e.late()
		case err != nil:
			return nil, err
		}
		info := newExecutionInfo(answer.(*belayv1.Execution))
		e.info.Store(info)
		if info.Ended() {
			return info, nil
		}
		if ctx.Err() == context.DeadlineExceeded {
			return nil, e.late()
		}
	}
}

func (e *Execution) late() error {
	state, info := "", e.Info()
	if info != nil {
		state = ", and is " + info.State
	}
	message := fmt.Sprintf("The execution `%s` has not ended before the deadline%s. It continues.", e.ID(), state)
	return &WaitTimeoutError{&Error{Reason: "WAIT_TIMEOUT", Message: message, cause: context.DeadlineExceeded}, info}
}

// Result waits for the end and stores the outputs that the plan declares in what out points to, as [Value.Decode] does: a struct, a map, an any, or a
// *json.RawMessage; nil stores nothing, and neither does a plan without outputs. Large outputs are read.
//
// The error is an [ExecutionFailedError] when the execution ends in another state than COMPLETED, a [WaitTimeoutError] after the deadline of ctx, and
// [DataLoss] when the outputs could not be resolved.
func (e *Execution) Result(ctx context.Context, out any) error {
	if _, err := e.Wait(ctx); err != nil {
		return err
	}
	info, err := e.Get(ctx, Full())
	if err != nil {
		return err
	}
	outputs, err := e.whole(ctx, info.Outputs)
	if err != nil {
		return err
	}
	if !info.Succeeded() {
		return newFailed(info, outputs)
	}
	if failure := info.OutputsFailure; failure != nil {
		return dataLoss(failure.Reason, "%s", failure.Message)
	}
	if out == nil {
		return nil
	}
	return outputs.Decode(out)
}

// whole returns a value with what is in its blob.
func (e *Execution) whole(ctx context.Context, value Value) (Value, error) {
	if value.blob == nil {
		return value, nil
	}
	text, err := e.ReadBlob(ctx, value.blob)
	if err != nil {
		return Value{}, err
	}
	return Value{json: string(text)}, nil
}

// Events yields the execution's events: each stored event once and in order, however often the connection or the server is lost. It ends with the execution, or
// with an error.
//
// When the server cannot continue from the cursor that [After] takes, an event of the kind `reset` comes: forget what you know; all events follow from the
// first. An event of an unknown kind that must not be skipped is a [ContractError].
func (e *Execution) Events(ctx context.Context, opts ...EventsOption) iter.Seq2[*Event, error] {
	o := gather(EventsOption.events, opts)
	return watchStream(ctx, e.transport, "ExecutorService/WatchExecution", func() (watcher[Event], error) {
		return newExecutionWatch(e.name, o.after, o.output, e.transport.settings.heartbeat), nil
	})
}

// Steps yields the steps in the plan's order; with [Full] also their outputs.
func (e *Execution) Steps(ctx context.Context, opts ...StepsOption) iter.Seq2[*StepInfo, error] {
	o := gather(StepsOption.steps, opts)
	view := belayv1.StepView_STEP_VIEW_BASIC
	if o.full {
		view = belayv1.StepView_STEP_VIEW_FULL
	}
	return paged(func(token string) ([]*StepInfo, string, error) {
		request := &belayv1.ListStepsRequest{Parent: e.name, PageSize: int32Of(o.pageSize), PageToken: token, View: view}
		page, err := unary[*belayv1.ListStepsResponse](ctx, e.transport, "ExecutorService/ListSteps", request)
		if err != nil {
			return nil, "", err
		}
		return mapped(page.Steps, newStepInfo), page.NextPageToken, nil
	})
}

// Step returns one step with its output, by its id.
func (e *Execution) Step(ctx context.Context, step string) (*StepInfo, error) {
	name, err := stepName(e.name, step)
	if err != nil {
		return nil, err
	}
	answer, err := unary[*belayv1.Step](ctx, e.transport, "ExecutorService/GetStep", &belayv1.GetStepRequest{Name: name})
	if err != nil {
		return nil, err
	}
	return newStepInfo(answer), nil
}

// Output stores the output of a step in what out points to, as [Value.Decode] does. A large one is read.
func (e *Execution) Output(ctx context.Context, step string, out any) error {
	info, err := e.Step(ctx, step)
	if err != nil {
		return err
	}
	return e.ReadValue(ctx, info.Output, out)
}

// ReadValue stores a value in what out points to, as [Value.Decode] does, also one that is in a blob.
func (e *Execution) ReadValue(ctx context.Context, value Value, out any) error {
	whole, err := e.whole(ctx, value)
	if err != nil {
		return err
	}
	return whole.Decode(out)
}

// Artifacts yields the artifacts in the order in which they were made: the outputs of steps (OUTPUT) and the files that calls committed (FILE).
func (e *Execution) Artifacts(ctx context.Context, opts ...ArtifactsOption) iter.Seq2[*Artifact, error] {
	o := gather(ArtifactsOption.artifacts, opts)
	parent := e.name
	var kind belayv1.Artifact_Kind
	if o.step != nil {
		name, err := stepName(e.name, *o.step)
		if err != nil {
			return failed[*Artifact](err)
		}
		parent = name
	}
	if o.kind != nil {
		number, err := enumNumber(kind, *o.kind, "KIND_", "kind")
		if err != nil {
			return failed[*Artifact](err)
		}
		kind = belayv1.Artifact_Kind(number)
	}
	return paged(func(token string) ([]*Artifact, string, error) {
		request := &belayv1.ListArtifactsRequest{
			Parent: parent, PageSize: int32Of(o.pageSize), PageToken: token, Kind: kind, PathPrefix: optional(o.pathPrefix),
		}
		page, err := unary[*belayv1.ListArtifactsResponse](ctx, e.transport, "ExecutorService/ListArtifacts", request)
		if err != nil {
			return nil, "", err
		}
		return mapped(page.Artifacts, newArtifact), page.NextPageToken, nil
	})
}

// ReadArtifact returns the content of an OUTPUT, by the artifact's name; it is JSON text. The contents of files are in the workspace: [FailedPrecondition].
func (e *Execution) ReadArtifact(ctx context.Context, artifact string) ([]byte, error) {
	if artifact == "" {
		return nil, usage("artifact", "`artifact` is empty: give the name of a belay.Artifact.")
	}
	if lastPart(artifact) == artifact {
		artifact = e.name + "/artifacts/" + artifact
	}
	return joined(e.pieces(ctx, "ExecutorService/GetArtifact", 0, 0, func(offset int64) proto.Message {
		return &belayv1.GetArtifactRequest{Name: artifact, Offset: offset}
	}))
}

// StreamBlob yields the bytes of a blob, in pieces of at most 64 KiB. A connection that is lost is made again where it broke. The error is [DataLoss] when the
// blob is damaged, or has another size than SizeBytes, where that is not 0.
func (e *Execution) StreamBlob(ctx context.Context, blob *Blob, opts ...BlobOption) iter.Seq2[[]byte, error] {
	name, err := blobName(e.name, blob.Digest)
	if err != nil {
		return failed[[]byte](err)
	}
	offset := gather(BlobOption.blob, opts).offset
	return e.pieces(ctx, "ExecutorService/ReadBlob", offset, blob.SizeBytes, func(offset int64) proto.Message {
		return &belayv1.ReadBlobRequest{Name: name, Offset: offset}
	})
}

// ReadBlob returns the bytes of a blob. The errors are those of StreamBlob.
func (e *Execution) ReadBlob(ctx context.Context, blob *Blob) ([]byte, error) {
	return joined(e.StreamBlob(ctx, blob))
}

func joined(pieces iter.Seq2[[]byte, error]) ([]byte, error) {
	var all []byte
	for piece, err := range pieces {
		if err != nil {
			return nil, err
		}
		all = append(all, piece...)
	}
	return all, nil
}

// pieces yields the bytes of a method from an offset on; size is 0 when it is not known.
func (e *Execution) pieces(
	ctx context.Context, method string, offset, size int64, request func(offset int64) proto.Message,
) iter.Seq2[[]byte, error] {
	first := offset
	return func(yield func([]byte, error) bool) {
		offset := first
		reconnection := newReconnection(e.transport.settings.reconnectFor)
		for {
			done, err := e.readPieces(ctx, method, request(offset), &offset, reconnection, yield)
			if done {
				return
			}
			if err == nil {
				break
			}
			if ended := contextError(ctx); ended != nil {
				yield(nil, ended)
				return
			}
			delay, again := reconnection.delayAfter(err)
			if !again {
				yield(nil, err)
				return
			}
			if err := sleep(ctx, delay); err != nil {
				yield(nil, err)
				return
			}
		}
		if size != 0 && offset != size {
			yield(nil, dataLoss("BLOB_DAMAGED", "The server sent %d bytes of a blob of %d.", offset, size))
		}
	}
}

// readPieces reads one connection. It returns true when the reader has left.
func (e *Execution) readPieces(
	ctx context.Context, method string, request proto.Message, offset *int64, reconnection *reconnection, yield func([]byte, error) bool,
) (bool, error) {
	stream, err := e.transport.open(ctx, method, request, bytesSilence)
	if err != nil {
		return false, err
	}
	defer stream.cancel()
	for {
		message, err := stream.read()
		if err != nil || message == nil {
			return false, err
		}
		reconnection.contact()
		piece := message.(interface {
			GetOffset() int64
			GetData() []byte
		})
		if len(piece.GetData()) == 0 {
			continue
		}
		if piece.GetOffset() != *offset {
			return false, dataLoss("BLOB_DAMAGED", "The server sent the bytes from %d on, where those from %d on follow.", piece.GetOffset(), *offset)
		}
		*offset += int64(len(piece.GetData()))
		if !yield(piece.GetData(), nil) {
			return true, nil
		}
		reconnection.contact()
	}
}

// Approvals returns the approvals and forms of the execution in these states; without any, those that wait for a person (PENDING).
func (e *Execution) Approvals(ctx context.Context, states ...string) ([]*Approval, error) {
	if len(states) == 0 {
		states = []string{"PENDING"}
	}
	approvals := &Approvals{e.transport}
	return Collect(approvals.List(ctx, OfExecution(e.name), InStates(states...)))
}
