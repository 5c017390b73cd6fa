// Package scripted has a gRPC server that answers as a script says: what a live server does only by accident, such as a stream that breaks at a certain message.
package scripted

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/durationpb"

	// The messages of the contract are found by their names.
	_ "belay.dev/go/belayv1"
)

// Script has a list of answers for each method, by its name. The first request gets the first; the last one is repeated.
type Script map[string][]Answer

// Answer is what one request gets: messages, then an end.
type Answer struct {
	// Send are messages as protobuf JSON, or {"base64": …} with their bytes.
	Send []json.RawMessage
	// End is "ok" (also when it is absent), "silence" (nothing more comes until the client leaves), or a [Status].
	End json.RawMessage
}

// Status is the end of a call that is refused.
type Status struct {
	Code, Message, Reason, Domain string
	Metadata                      map[string]string
	RetryAfter                    *float64 `json:"retry_after"`
	Violations                    []struct{ Field, Description string }
}

// Request is a request that came.
type Request struct {
	// Method is its name, such as GetExecution.
	Method   string
	Message  proto.Message
	Metadata metadata.MD
}

// Server is a server on a free port of the loopback interface.
type Server struct {
	// URL is its address.
	URL string

	server   *grpc.Server
	lock     sync.Mutex
	script   Script
	requests []Request
}

// rawCodec passes bytes through, because a script has messages that no type can hold.
type rawCodec struct{}

func (rawCodec) Marshal(value any) ([]byte, error) { return *value.(*[]byte), nil }
func (rawCodec) Unmarshal(data []byte, value any) error {
	*value.(*[]byte) = append([]byte{}, data...)
	return nil
}
func (rawCodec) Name() string { return "proto" }

// Start starts a server. Close ends it.
func Start(script Script) (*Server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Server{URL: "http://" + listener.Addr().String(), script: Script{}}
	for method, answers := range script {
		s.script[method] = append([]Answer{}, answers...)
	}
	s.server = grpc.NewServer(grpc.ForceServerCodec(rawCodec{}), grpc.UnknownServiceHandler(s.handle))
	go func() { _ = s.server.Serve(listener) }()
	return s, nil
}

// Close ends the server and all calls.
func (s *Server) Close() { s.server.Stop() }

// Requests returns the requests of a method that came so far.
func (s *Server) Requests(method string) []Request {
	s.lock.Lock()
	defer s.lock.Unlock()
	var found []Request
	for _, request := range s.requests {
		if request.Method == method {
			found = append(found, request)
		}
	}
	return found
}

func (s *Server) handle(_ any, stream grpc.ServerStream) error {
	path, _ := grpc.MethodFromServerStream(stream)
	name := protoreflect.FullName(strings.ReplaceAll(strings.Trim(path, "/"), "/", "."))
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
	if err != nil {
		return status.Error(codes.Unimplemented, path)
	}
	method := found.(protoreflect.MethodDescriptor)
	answer, err := s.next(method, stream)
	if err != nil {
		return err
	}
	for _, message := range answer.Send {
		data, err := encode(message, method.Output())
		if err != nil {
			return status.Error(codes.Internal, err.Error())
		}
		if err := stream.SendMsg(&data); err != nil {
			return err
		}
	}
	return end(stream, answer.End)
}

// next keeps the request and returns its answer.
func (s *Server) next(method protoreflect.MethodDescriptor, stream grpc.ServerStream) (Answer, error) {
	var data []byte
	if err := stream.RecvMsg(&data); err != nil {
		return Answer{}, err
	}
	request, err := newMessage(method.Input())
	if err == nil {
		err = proto.Unmarshal(data, request)
	}
	if err != nil {
		return Answer{}, status.Error(codes.Internal, err.Error())
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	header, _ := metadata.FromIncomingContext(stream.Context())
	name := string(method.Name())
	s.requests = append(s.requests, Request{name, request, header})
	answers := s.script[name]
	if len(answers) == 0 {
		return Answer{}, status.Error(codes.Unimplemented, "the script has no "+name)
	}
	if len(answers) > 1 {
		s.script[name] = answers[1:]
	}
	return answers[0], nil
}

func newMessage(descriptor protoreflect.MessageDescriptor) (proto.Message, error) {
	kind, err := protoregistry.GlobalTypes.FindMessageByName(descriptor.FullName())
	if err != nil {
		return nil, err
	}
	return kind.New().Interface(), nil
}

func encode(text json.RawMessage, descriptor protoreflect.MessageDescriptor) ([]byte, error) {
	var raw struct{ Base64 string }
	if json.Unmarshal(text, &raw) == nil && raw.Base64 != "" {
		return base64.StdEncoding.DecodeString(raw.Base64)
	}
	message, err := newMessage(descriptor)
	if err != nil {
		return nil, err
	}
	if err := protojson.Unmarshal(text, message); err != nil {
		return nil, err
	}
	return proto.Marshal(message)
}

func end(stream grpc.ServerStream, text json.RawMessage) error {
	var word string
	if len(text) == 0 {
		return nil
	}
	if json.Unmarshal(text, &word) == nil {
		switch word {
		case "ok":
			return nil
		case "silence":
			<-stream.Context().Done()
			return status.FromContextError(stream.Context().Err()).Err()
		}
		return status.Error(codes.Internal, "an end of a script that is unknown: "+word)
	}
	var wanted Status
	if err := json.Unmarshal(text, &wanted); err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	return wanted.err()
}

// err returns the status as gRPC sends it, with its details.
func (s Status) err() error {
	number, ok := code.Code_value[s.Code]
	if !ok {
		return status.Error(codes.Internal, fmt.Sprintf("the script has the code %q", s.Code))
	}
	refused := status.New(codes.Code(number), s.Message)
	var details []protoadapt.MessageV1
	if s.Reason != "" {
		domain := s.Domain
		if domain == "" {
			domain = "belay.dev"
		}
		details = append(details, &errdetails.ErrorInfo{Reason: s.Reason, Domain: domain, Metadata: s.Metadata})
	}
	if s.RetryAfter != nil {
		delay := time.Duration(*s.RetryAfter * float64(time.Second))
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(delay)})
	}
	if len(s.Violations) > 0 {
		request := &errdetails.BadRequest{}
		for _, one := range s.Violations {
			request.FieldViolations = append(request.FieldViolations, &errdetails.BadRequest_FieldViolation{Field: one.Field, Description: one.Description})
		}
		details = append(details, request)
	}
	detailed, err := refused.WithDetails(details...)
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	return detailed.Err()
}
