package belay

import (
	"context"
	"iter"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"belay.dev/go/belayv1"
)

// Client is a client of one Belay server and one namespace. [Connect] makes it. Any number of goroutines use it.
type Client struct {
	transport *transport
}

// Connect makes a client. The connection itself is made by the first call, and again whenever it is lost. What no option gives comes from the environment: each
// option names its variable. It returns a [UsageError] for a setting that is not valid.
func Connect(ctx context.Context, options ...ConnectOption) (*Client, error) {
	if err := contextError(ctx); err != nil {
		return nil, err
	}
	settings, err := resolve(options)
	if err != nil {
		return nil, err
	}
	transport, err := newTransport(settings)
	if err != nil {
		return nil, err
	}
	return &Client{transport}, nil
}

// Close closes the connection. Open calls and streams end with an error, and later ones return a [UsageError].
func (c *Client) Close() error { return c.transport.close() }

// Namespace returns the namespace of the executions that the client starts and lists.
func (c *Client) Namespace() string { return c.transport.settings.namespace }

// URL returns the address of the server.
func (c *Client) URL() string { return c.transport.settings.server.url }

// Approvals returns the approvals and forms of the namespace.
func (c *Client) Approvals() *Approvals { return &Approvals{c.transport} }

func (c *Client) parent() string { return "namespaces/" + c.Namespace() }

// Start starts an execution of a plan; it is durable when this returns. plan is a map or a struct, a *[Plan], json.RawMessage, or a string with the path of a
// YAML or JSON file. The error is [InvalidArgument] with a field for each problem of the plan, and [AlreadyExists] when the id is taken or the key was used for
// another request.
func (c *Client) Start(ctx context.Context, plan any, opts ...StartOption) (*Execution, error) {
	o := gather(StartOption.start, opts)
	document, err := toDocument(plan)
	if err != nil {
		return nil, err
	}
	request := &belayv1.StartExecutionRequest{
		Parent:      c.parent(),
		ExecutionId: o.id,
		Source:      &belayv1.StartExecutionRequest_Document{Document: document},
		RequestId:   requestID(o.key),
		Labels:      o.labels,
		Workspace:   o.workspace,
		StartPaused: o.startPaused,
	}
	if o.inputs != nil {
		if request.Inputs, err = toPayload(o.inputs, "inputs"); err != nil {
			return nil, err
		}
		if !strings.HasPrefix(strings.TrimSpace(request.Inputs.GetJson()), "{") {
			return nil, usage("inputs", "`inputs` is not an object with a value for each input of the plan.")
		}
	}
	if o.approvalMode != nil {
		mode, err := enumNumber(belayv1.ApprovalMode(0), *o.approvalMode, "APPROVAL_MODE_", "approval_mode")
		if err != nil {
			return nil, err
		}
		request.ApprovalMode = belayv1.ApprovalMode(mode)
	}
	if o.startTime != nil {
		request.StartTime = timestamppb.New(*o.startTime)
	}
	if o.stepTimeout != nil {
		if *o.stepTimeout < 0 {
			return nil, usage("step_timeout", "`step_timeout` is %s: it is 0 or more.", *o.stepTimeout)
		}
		request.StepTimeout = durationpb.New(*o.stepTimeout)
	}
	answer, err := unary[*belayv1.Execution](ctx, c.transport, "ExecutorService/StartExecution", request)
	if err != nil {
		return nil, err
	}
	return newExecution(c.transport, answer.Name, newExecutionInfo(answer)), nil
}

// Validate checks a plan as Start does, and starts nothing. It returns its problems; none means that it would be accepted.
func (c *Client) Validate(ctx context.Context, plan any) ([]FieldViolation, error) {
	document, err := toDocument(plan)
	if err != nil {
		return nil, err
	}
	request := &belayv1.ValidatePlanRequest{Parent: c.parent(), Source: &belayv1.ValidatePlanRequest_Document{Document: document}}
	answer, err := unary[*belayv1.ValidatePlanResponse](ctx, c.transport, "ExecutorService/ValidatePlan", request)
	if err != nil {
		return nil, err
	}
	var found []FieldViolation
	for _, one := range answer.Violations {
		found = append(found, FieldViolation{one.Field, one.Message, int(one.Line), int(one.Column)})
	}
	return found, nil
}

// Execution returns a handle of an execution by its id or its name. It asks the server nothing. The error is a [UsageError] for what is neither.
func (c *Client) Execution(execution string) (*Execution, error) {
	name, err := executionName(execution, c.Namespace())
	if err != nil {
		return nil, err
	}
	return newExecution(c.transport, name, nil), nil
}

// Executions yields the executions of the namespace that match, the newest first; pages are asked for as they are needed. filter is such as
// `state = FAILED AND labels.team = "a"`; an empty one shows all. Executions that carry out the plans of steps are left out, unless [IncludeChildren] is given.
func (c *Client) Executions(ctx context.Context, filter string, opts ...ExecutionsOption) iter.Seq2[*ExecutionInfo, error] {
	o := gather(ExecutionsOption.executions, opts)
	return paged(func(token string) ([]*ExecutionInfo, string, error) {
		request := &belayv1.ListExecutionsRequest{
			Parent: c.parent(), PageSize: int32Of(o.pageSize), PageToken: token, Filter: filter, OrderBy: o.orderBy, IncludeChildren: o.includeChildren,
		}
		page, err := unary[*belayv1.ListExecutionsResponse](ctx, c.transport, "ExecutorService/ListExecutions", request)
		if err != nil {
			return nil, "", err
		}
		return mapped(page.Executions, newExecutionInfo), page.NextPageToken, nil
	})
}

// WatchExecutions yields the executions that match: all in their current state, then each that changes or is removed, until its context ends. It shows states,
// not each event, and a slow reader misses states in between. [After] takes the cursor of an earlier update (good for 10 minutes at least, then a reset comes).
func (c *Client) WatchExecutions(ctx context.Context, filter string, opts ...WatchOption) iter.Seq2[*ExecutionUpdate, error] {
	o := gather(WatchOption.watch, opts)
	return watchStream(ctx, c.transport, "ExecutorService/WatchExecutions", func() (watcher[ExecutionUpdate], error) {
		state := stateWatch{cursor: o.after, heartbeat: c.transport.settings.heartbeat}
		return &executionsWatch{stateWatch: state, parent: c.parent(), filter: filter, includeChildren: o.includeChildren}, nil
	})
}

// Call calls any unary method of the contract, such as `ExecutorService/ExplainExecution`, with a message of belayv1, and stores its answer in response. The
// call has the client's credentials, errors and deadlines, and is repeated where the contract says that it is safe.
func (c *Client) Call(ctx context.Context, method string, request, response proto.Message) error {
	known, ok := methods[method]
	if !ok || known.isStreaming {
		var names []string
		for name, one := range methods {
			if !one.isStreaming {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		return usage("method", "`method` is %q, and has to be one of %s.", method, strings.Join(names, ", "))
	}
	if request == nil || request.ProtoReflect().Descriptor().FullName() != known.input {
		return usage("request", "`request` of %s is a %s.", method, known.input)
	}
	if response == nil || response.ProtoReflect().Descriptor() != known.output.Descriptor() {
		return usage("response", "`response` of %s is a %s.", method, known.output.Descriptor().FullName())
	}
	answer, err := c.transport.call(ctx, method, request)
	if err != nil {
		return err
	}
	proto.Reset(response)
	proto.Merge(response, answer)
	return nil
}

// mapped returns the values made from each message.
func mapped[M, T any](messages []M, make func(M) T) []T {
	made := []T{}
	for _, message := range messages {
		made = append(made, make(message))
	}
	return made
}
