package belay

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrorsPage is the page of Belay's documentation that explains each reason.
const ErrorsPage = "docs/errors.md"

// Code is the class of an error: the name of its gRPC code, such as NOT_FOUND. A Code is an error itself, so that errors.Is(err, belay.NotFound) holds for
// every error of that class.
type Code string

// The codes of errors.
const (
	// Cancelled means that the call was cancelled: by its context, or on its way.
	Cancelled Code = "CANCELLED"
	// Unknown is a fault of the server or of a proxy on the way.
	Unknown Code = "UNKNOWN"
	// InvalidArgument means that a field has a value that is not allowed, such as a plan that is not valid. Nothing happened.
	InvalidArgument Code = "INVALID_ARGUMENT"
	// DeadlineExceeded means that the answer did not come in time. A change may have happened.
	DeadlineExceeded Code = "DEADLINE_EXCEEDED"
	// NotFound means that what the request names does not exist, or exists no longer.
	NotFound Code = "NOT_FOUND"
	// AlreadyExists means that the id is taken, or the key was used for another request. Nothing happened.
	AlreadyExists Code = "ALREADY_EXISTS"
	// PermissionDenied means that none of the caller's roles allows the request.
	PermissionDenied Code = "PERMISSION_DENIED"
	// ResourceExhausted means that a limit of the server is reached; RetryAfter says when to try again, if that is known.
	ResourceExhausted Code = "RESOURCE_EXHAUSTED"
	// FailedPrecondition means that the state does not allow the request, such as an execution that has ended or an approval that was decided.
	FailedPrecondition Code = "FAILED_PRECONDITION"
	// Aborted means that the execution has changed since the etag of the request was read.
	Aborted Code = "ABORTED"
	// OutOfRange means that an offset or a position is after the end.
	OutOfRange Code = "OUT_OF_RANGE"
	// Unimplemented means that the server lacks the method: it is older than the client, or it is no Belay server.
	Unimplemented Code = "UNIMPLEMENTED"
	// Internal is a fault of the server or of a proxy on the way.
	Internal Code = "INTERNAL"
	// Unavailable means that the server does not answer, or cannot serve the request now.
	Unavailable Code = "UNAVAILABLE"
	// DataLoss means that stored data is missing or damaged.
	DataLoss Code = "DATA_LOSS"
	// Unauthenticated means that the server does not know the token, or the caller sent none.
	Unauthenticated Code = "UNAUTHENTICATED"
)

// codesByNumber has the names by the numbers of gRPC.
var codesByNumber = []Code{
	"OK", Cancelled, Unknown, InvalidArgument, DeadlineExceeded, NotFound, AlreadyExists, PermissionDenied, ResourceExhausted, FailedPrecondition, Aborted,
	OutOfRange, Unimplemented, Internal, Unavailable, DataLoss, Unauthenticated,
}

// Error returns the name of the code.
func (c Code) Error() string { return string(c) }

// FieldViolation is a problem with one field of a request or a plan.
type FieldViolation struct {
	// Field is the field as the caller wrote it, such as `steps[2].depends_on[0]`.
	Field string
	// Description is the problem, and what to do about it.
	Description string
	// Line and Column are the place in the plan's document, counted from 1; 0 when it is not known.
	Line, Column int
}

// String returns the field and its problem.
func (v FieldViolation) String() string {
	if v.Field == "" {
		return v.Description
	}
	return v.Field + ": " + v.Description
}

// Error is the error of a request that the server or the client refuses. What goes wrong while an execution runs is no error of a method: it is the
// execution's Failure, and only [Execution.Result] returns it, as [ExecutionFailedError].
type Error struct {
	// Code is the class. It is empty for what the client itself refuses, which is a [UsageError] or a [ContractError].
	Code Code
	// Reason is a stable identifier for programs, such as EXECUTION_NOT_FOUND.
	Reason string
	// Message is a sentence for people, which may change.
	Message string
	// Fields are the fields that are wrong.
	Fields []FieldViolation
	// RetryAfter is the time after which a repetition can succeed; 0 when that is not known.
	RetryAfter time.Duration
	// Metadata has further facts by name.
	Metadata map[string]string

	// hasDelay tells a delay of 0, which asks for a repetition, from none.
	hasDelay bool
	cause    error
}

// Page returns the page and anchor of Belay's documentation that explain the reason.
func (e *Error) Page() string { return ErrorsPage + "#" + strings.ToLower(e.Reason) }

// Error returns the message, the reason with its page, and a line for each field.
func (e *Error) Error() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s (%s: %s)", e.Message, e.Reason, e.Page())
	for _, violation := range e.Fields {
		// The message of an error with one field of the client's is the problem of that field.
		if violation.Description != e.Message {
			text.WriteString("\n  " + violation.String())
		}
	}
	return text.String()
}

// Is reports whether the error is of a class: target is its Code. A DEADLINE_EXCEEDED is also a context.DeadlineExceeded, and a CANCELLED by the context of the
// call a context.Canceled.
func (e *Error) Is(target error) bool {
	if code, ok := target.(Code); ok {
		return e.Code != "" && e.Code == code
	}
	return target == context.DeadlineExceeded && e.Code == DeadlineExceeded || target == context.Canceled && e.Code == Cancelled && e.cause != nil
}

// Unwrap returns the error of the context or the system that led to this one, or nil.
func (e *Error) Unwrap() error { return e.cause }

// base is embedded where a field named Error would hide the method.
type base = Error

// UsageError says that the client was used wrongly: an address, an argument or a plan that cannot be sent, or a variable that cannot hold an answer. What is
// wrong with an argument is found before anything is sent.
type UsageError struct{ *base }

// Unwrap returns the *Error.
func (e *UsageError) Unwrap() error { return e.base }

// ContractError says that the server sent what this client does not understand and must not ignore: upgrade the client.
type ContractError struct{ *base }

// Unwrap returns the *Error.
func (e *ContractError) Unwrap() error { return e.base }

// WaitTimeoutError says that the execution did not end before the deadline of the wait's context. The execution continues. It is a
// context.DeadlineExceeded for errors.Is.
type WaitTimeoutError struct {
	*base
	// Info is the execution as it was last seen, or nil when it was never seen.
	Info *ExecutionInfo
}

// Unwrap returns the *Error.
func (e *WaitTimeoutError) Unwrap() error { return e.base }

// ExecutionFailedError says that the execution has ended in another state than COMPLETED. Only [Execution.Result] returns it.
type ExecutionFailedError struct {
	*base
	// Info is the execution with its State.
	Info *ExecutionInfo
	// Failure is the failure of the first step that failed, or nil.
	Failure *Failure
	// Outputs are what the plan returns all the same (PARTIAL).
	Outputs Value
}

// Unwrap returns the *Error.
func (e *ExecutionFailedError) Unwrap() error { return e.base }

func newFailed(info *ExecutionInfo, outputs Value) error {
	reason := map[string]string{"CANCELLED": "EXECUTION_CANCELLED", "TIMED_OUT": "EXECUTION_TIMED_OUT"}[info.State]
	if reason == "" {
		reason = "EXECUTION_FAILED"
	}
	message := fmt.Sprintf("The execution `%s` has ended %s.", info.ID, info.State)
	if info.Failure != nil {
		message += " " + info.Failure.Message
		if info.Failure.Reason != "" {
			reason = info.Failure.Reason
		}
	}
	return &ExecutionFailedError{base: &Error{Reason: reason, Message: message}, Info: info, Failure: info.Failure, Outputs: outputs}
}

// usage returns the error for an argument; field is empty when none is to blame.
func usage(field, format string, arguments ...any) error {
	return usageFor("INVALID_USAGE", field, format, arguments...)
}

func usageFor(reason, field, format string, arguments ...any) error {
	wrapped := fmt.Errorf(format, arguments...)
	found := &Error{Reason: reason, Message: wrapped.Error(), cause: errors.Unwrap(wrapped)}
	if field != "" {
		found.Fields = []FieldViolation{{Field: field, Description: found.Message}}
	}
	return &UsageError{found}
}

func contractError(reason, format string, arguments ...any) error {
	return &ContractError{&Error{Reason: reason, Message: fmt.Sprintf(format, arguments...)}}
}

func dataLoss(reason, format string, arguments ...any) error {
	return &Error{Code: DataLoss, Reason: reason, Message: fmt.Sprintf(format, arguments...)}
}

// asError returns the *Error of an error of this package, or nil.
func asError(err error) *Error {
	var found *Error
	if errors.As(err, &found) {
		return found
	}
	return nil
}
