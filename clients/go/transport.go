package belay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"belay.dev/go/belayv1"
)

// maxMessageBytes is the largest size of a request that the server reads.
const maxMessageBytes = 16 << 20

// method is a method of the contract.
type method struct {
	service string
	// path is /package.Service/Method.
	path        string
	input       protoreflect.FullName
	output      protoreflect.MessageType
	isStreaming bool
	// isRead says that it changes nothing, by the contract.
	isRead bool
}

// methods are those of the contract, by `Service/Method`.
var methods = contractMethods()

func contractMethods() map[string]method {
	found := map[string]method{}
	for _, file := range []protoreflect.FileDescriptor{
		belayv1.File_belay_v1_executor_service_proto, belayv1.File_belay_v1_approval_service_proto, belayv1.File_belay_v1_policy_service_proto,
		belayv1.File_belay_v1_model_service_proto, belayv1.File_belay_v1_schedule_service_proto,
	} {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for j := range service.Methods().Len() {
				one := service.Methods().Get(j)
				output, err := protoregistry.GlobalTypes.FindMessageByName(one.Output().FullName())
				if err != nil {
					panic(fmt.Sprintf("the stubs lack %s: %v", one.Output().FullName(), err))
				}
				level := one.Options().(*descriptorpb.MethodOptions).GetIdempotencyLevel()
				found[string(service.Name())+"/"+string(one.Name())] = method{
					service:     string(service.Name()),
					path:        "/" + string(service.FullName()) + "/" + string(one.Name()),
					input:       one.Input().FullName(),
					output:      output,
					isStreaming: one.IsStreamingServer(),
					isRead:      level == descriptorpb.MethodOptions_NO_SIDE_EFFECTS,
				}
			}
		}
	}
	return found
}

// isRepeatable says whether a call may be made again without knowing what became of the first: it reads, or its key makes the repetition the same request.
func isRepeatable(m method, request proto.Message) bool {
	keyed, ok := request.(interface{ GetRequestId() string })
	return m.isRead || ok && keyed.GetRequestId() != ""
}

// transport has the channels to the services. Any number of goroutines use it.
type transport struct {
	settings *settings
	channels map[address]*grpc.ClientConn
	isClosed atomic.Bool
}

func newTransport(s *settings) (*transport, error) {
	t := &transport{settings: s, channels: map[address]*grpc.ClientConn{}}
	for _, to := range []address{s.server, s.gate} {
		if t.channels[to] != nil {
			continue
		}
		options, err := dialOptions(to, s)
		if err != nil {
			return nil, err
		}
		channel, err := grpc.NewClient(to.target, options...)
		if err != nil {
			return nil, usage("url", "%s cannot be used as an address: %w.", to.url, err)
		}
		t.channels[to] = channel
	}
	return t, nil
}

func dialOptions(to address, s *settings) ([]grpc.DialOption, error) {
	certificates := insecure.NewCredentials()
	if to.isEncrypted {
		var given TLS
		if s.tls != nil {
			given = *s.tls
		}
		config, err := given.config()
		if err != nil {
			return nil, err
		}
		certificates = credentials.NewTLS(config)
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(certificates),
		grpc.WithUserAgent("belay-go/" + Version),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageBytes), grpc.MaxCallSendMsgSize(maxMessageBytes)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 10 * time.Second}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
			MinConnectTimeout: time.Second,
		}),
		// The client repeats calls itself, because only it knows which ones are safe.
		grpc.WithDisableRetry(),
		grpc.WithDisableServiceConfig(),
	}
	if to.isUnix {
		// The path of a socket is no authority by RFC 3986.
		options = append(options, grpc.WithAuthority("localhost"))
	}
	if to.isLocal {
		options = append(options, grpc.WithNoProxy())
	}
	return options, nil
}

func (t *transport) close() error {
	if t.isClosed.Swap(true) {
		return nil
	}
	var failures []error
	for _, channel := range t.channels {
		failures = append(failures, channel.Close())
	}
	return errors.Join(failures...)
}

// channel returns the channel of a method's service and its address.
func (t *transport) channel(m method) (*grpc.ClientConn, address, error) {
	to := t.settings.addressOf(m.service)
	if t.isClosed.Load() {
		return nil, to, usage("", "The client is closed: connect a new one.")
	}
	return t.channels[to], to, nil
}

// outgoing returns the context of a call with its metadata: who asks, the contract's revision, and the caller's place in its trace. Metadata that the caller
// has put into the context stays.
func (t *transport) outgoing(ctx context.Context) context.Context {
	pairs := []string{"belay-contract", fmt.Sprint(ContractRevision)}
	if t.settings.token != "" {
		pairs = append(pairs, "authorization", "Bearer "+t.settings.token)
	}
	if t.settings.propagator != nil {
		t.settings.propagator(ctx, func(key, value string) {
			if key = strings.ToLower(key); (key == "traceparent" || key == "tracestate") && value != "" {
				pairs = append(pairs, key, value)
			}
		})
	}
	return metadata.AppendToOutgoingContext(ctx, pairs...)
}

// call makes one unary call, again where that is safe, and returns the answer.
func (t *transport) call(ctx context.Context, name string, request proto.Message) (proto.Message, error) {
	return t.callFor(ctx, name, request, t.settings.timeout, t.settings.retryFor)
}

func (t *transport) callFor(ctx context.Context, name string, request proto.Message, timeout, retryFor time.Duration) (proto.Message, error) {
	m := methods[name]
	if err := checkRequest(request); err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	tries := newAttempts(timeout, retryFor, isRepeatable(m, request))
	for {
		channel, to, err := t.channel(m)
		if err != nil {
			return nil, err
		}
		answer := m.output.New().Interface()
		var header metadata.MD
		failure := channel.Invoke(t.outgoing(bounded), m.path, request, answer, grpc.Header(&header))
		if failure == nil {
			return answer, nil
		}
		if t.isClosed.Load() {
			return nil, usage("", "The client is closed: connect a new one.")
		}
		decoded := decodeError(bounded, failure, to.url, header)
		delay, again := tries.delayAfter(decoded)
		if !again {
			return nil, decoded
		}
		if sleep(bounded, delay) != nil {
			return nil, decoded
		}
	}
}

// unary makes a call and returns its answer as the type that the method has.
func unary[T proto.Message](ctx context.Context, t *transport, name string, request proto.Message) (T, error) {
	answer, err := t.call(ctx, name, request)
	if err != nil {
		var none T
		return none, err
	}
	return answer.(T), nil
}

// checkRequest refuses a request that no server reads.
func checkRequest(request proto.Message) error {
	if _, err := proto.Marshal(request); err != nil {
		return usage("", "The request cannot be sent: %w.", err)
	}
	if size := proto.Size(request); size > maxMessageBytes {
		return usageFor("MESSAGE_TOO_LARGE", "",
			"The request has %d bytes, and at most %d are sent: put large content into files and pass their paths.", size, maxMessageBytes)
	}
	return nil
}

// sleep waits, or returns the context's error.
func sleep(ctx context.Context, delay time.Duration) error {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return contextError(ctx)
	}
}

// messageStream is an open stream of messages that counts as lost after a silence. One goroutine reads it.
type messageStream struct {
	stream  grpc.ClientStream
	context context.Context
	cancel  context.CancelFunc
	output  protoreflect.MessageType
	target  string
	silence time.Duration
}

// open opens a stream.
func (t *transport) open(ctx context.Context, name string, request proto.Message, silence time.Duration) (*messageStream, error) {
	m := methods[name]
	channel, to, err := t.channel(m)
	if err != nil {
		return nil, err
	}
	if err := checkRequest(request); err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, streamTimeout)
	stream, err := channel.NewStream(t.outgoing(bounded), &grpc.StreamDesc{ServerStreams: true}, m.path)
	if err == nil {
		err = stream.SendMsg(request)
		if errors.Is(err, io.EOF) {
			// The server has refused already; the read says why.
			err = nil
		}
	}
	if err == nil {
		err = stream.CloseSend()
	}
	if err != nil {
		cancel()
		return nil, decodeError(ctx, err, to.url, nil)
	}
	return &messageStream{stream, bounded, cancel, m.output, to.url, silence}, nil
}

// read returns the next message, or nil at the end of the stream.
func (s *messageStream) read() (proto.Message, error) {
	var silent atomic.Bool
	watchdog := time.AfterFunc(s.silence, func() {
		silent.Store(true)
		s.cancel()
	})
	message := s.output.New().Interface()
	err := s.stream.RecvMsg(message)
	watchdog.Stop()
	switch {
	case err == nil:
		return message, nil
	case errors.Is(err, io.EOF):
		return nil, nil
	case silent.Load():
		return nil, silentError(s.target, s.silence)
	}
	var header metadata.MD
	if s.context.Err() == nil {
		header, _ = s.stream.Header()
	}
	return nil, decodeError(s.context, err, s.target, header)
}
