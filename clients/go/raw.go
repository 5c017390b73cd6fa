package belay

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Raw returns the connection for generated stubs, streams among them: belayv1.NewScheduleServiceClient(client.Raw()). Its calls carry the client's credentials,
// the contract's revision and the trace of their context, and go to the server or the gate. They are not repeated, have no deadline but their context's, and
// return gRPC's errors.
func (c *Client) Raw() grpc.ClientConnInterface { return rawConn{c.transport} }

type rawConn struct{ transport *transport }

// channel returns the channel of /package.Service/Method.
func (r rawConn) channel(path string) (*grpc.ClientConn, error) {
	full, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	channel, _, err := r.transport.channel(method{service: full[strings.LastIndexByte(full, '.')+1:]})
	if err != nil {
		return nil, status.Error(codes.Canceled, err.Error())
	}
	return channel, nil
}

// Invoke makes a unary call.
func (r rawConn) Invoke(ctx context.Context, path string, request, response any, options ...grpc.CallOption) error {
	channel, err := r.channel(path)
	if err != nil {
		return err
	}
	return channel.Invoke(r.transport.outgoing(ctx), path, request, response, options...)
}

// NewStream opens a stream.
func (r rawConn) NewStream(ctx context.Context, description *grpc.StreamDesc, path string, options ...grpc.CallOption) (grpc.ClientStream, error) {
	channel, err := r.channel(path)
	if err != nil {
		return nil, err
	}
	return channel.NewStream(r.transport.outgoing(ctx), description, path, options...)
}
