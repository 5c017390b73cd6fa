package belay

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// errorDomain is the domain of the reasons in google.rpc.ErrorInfo.
const errorDomain = "belay.dev"

const detailsKey = "grpc-status-details-bin"

// decodeError returns the typed error for one of gRPC's. target is the address of the server, for the message; header is the metadata before the first
// message, in which the details of some refusals stand.
func decodeError(ctx context.Context, err error, target string, header metadata.MD) error {
	found := status.Convert(err)
	wire := found.Proto()
	if len(wire.GetDetails()) == 0 {
		if inHeader := detailsOf(header); inHeader != nil {
			wire = inHeader
		}
	}
	code := codeOf(codes.Code(wire.GetCode()))
	decoded := &Error{Code: code, Message: wire.GetMessage()}
	for _, detail := range wire.GetDetails() {
		// Details of a proxy may be anything: what cannot be read is left out.
		message, err := detail.UnmarshalNew()
		if err != nil {
			continue
		}
		switch one := message.(type) {
		case *errdetails.ErrorInfo:
			if one.Domain == errorDomain {
				decoded.Reason, decoded.Metadata = one.Reason, one.Metadata
			}
		case *errdetails.BadRequest:
			for _, violation := range one.FieldViolations {
				decoded.Fields = append(decoded.Fields, FieldViolation{Field: violation.Field, Description: violation.Description})
			}
		case *errdetails.RetryInfo:
			decoded.RetryAfter, decoded.hasDelay = one.RetryDelay.AsDuration(), true
		}
	}
	if decoded.Reason == "" {
		decoded.Reason = string(code)
		switch {
		case code == Unavailable:
			decoded.Reason = "SERVER_UNREACHABLE"
			decoded.Message = fmt.Sprintf("The server at %s does not answer: %s", target, orElse(decoded.Message, "the connection was lost"))
		case code == DeadlineExceeded:
			decoded.Message = fmt.Sprintf("The server at %s did not answer in time.", target)
		}
	}
	decoded.Message = orElse(decoded.Message, fmt.Sprintf("The server answered %s.", code))
	if ctx.Err() != nil && (code == Cancelled || code == DeadlineExceeded) {
		decoded.cause = context.Cause(ctx)
	}
	return decoded
}

// contextError returns the typed error for a context that has ended, or nil while it has not.
func contextError(ctx context.Context) error {
	err := ctx.Err()
	if err == nil {
		return nil
	}
	code := Cancelled
	if err == context.DeadlineExceeded {
		code = DeadlineExceeded
	}
	return &Error{Code: code, Reason: string(code), Message: "The call ended with its context: " + err.Error() + ".", cause: context.Cause(ctx)}
}

// detailsOf returns the status in the metadata, or nil.
func detailsOf(header metadata.MD) *spb.Status {
	for _, value := range header.Get(detailsKey) {
		var found spb.Status
		if proto.Unmarshal([]byte(value), &found) == nil && found.Code != 0 {
			return &found
		}
	}
	return nil
}

func codeOf(code codes.Code) Code {
	if int(code) < len(codesByNumber) {
		return codesByNumber[code]
	}
	return Unknown
}

func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// silentError returns the error for a stream on which nothing came, not even a heartbeat.
func silentError(target string, silence time.Duration) error {
	message := fmt.Sprintf("Nothing has come from the server at %s for %s, not even a heartbeat.", target, silence)
	return &Error{Code: Unavailable, Reason: "SERVER_UNREACHABLE", Message: message}
}
