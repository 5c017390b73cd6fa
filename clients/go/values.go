package belay

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"belay.dev/go/belayv1"
)

// Blob is a reference to a value that is too large to stand in a message (more than 32 KiB). [Execution.ReadBlob] returns its bytes.
type Blob struct {
	// Digest is under a key of the execution: `hmac-sha256:` and 64 hexadecimal digits. It says nothing about the content.
	Digest string
	// SizeBytes is the number of its bytes.
	SizeBytes int64
	// MediaType is that of its content: application/json.
	MediaType string
	// Redacted says that secrets in it are hidden.
	Redacted bool
}

// Digits returns the hexadecimal digits of the digest, which are the last part of the blob's name.
func (b *Blob) Digits() string { return b.Digest[strings.LastIndexByte(b.Digest, ':')+1:] }

// Value is a JSON value of an execution: an output, an input. It may be absent, and stand in a [Blob] where it is large.
type Value struct {
	json string
	blob *Blob
}

// IsSet reports whether there is a value: none is there when a step has no output, or when it was not asked for.
func (v Value) IsSet() bool { return v.json != "" || v.blob != nil }

// Blob returns the reference to a large value; nil when the value is here or absent.
func (v Value) Blob() *Blob { return v.blob }

// JSON returns the value as JSON text; empty when it is absent or in a blob.
func (v Value) JSON() string { return v.json }

// Decode stores the value in what out points to, as [json.Unmarshal] does, but whole numbers keep their 64 bits: in an `any` they are json.Number. It stores
// nothing when the value is absent, and returns a UsageError when it is in a blob, which [Execution.ReadValue] reads.
func (v Value) Decode(out any) error {
	if v.blob != nil {
		return usage("", "The value has %d bytes and is in a blob: read it with ReadValue.", v.blob.SizeBytes)
	}
	if v.json == "" {
		return nil
	}
	return decodeJSON([]byte(v.json), out)
}

// decodeJSON reads one JSON value, with whole numbers as they are written.
func decodeJSON(text []byte, out any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(out); err != nil {
		return usage("out", "The value does not fit what `out` points to: %w.", err)
	}
	if _, err := decoder.Token(); err != io.EOF {
		return usage("out", "The value is more than one JSON value.")
	}
	return nil
}

// toJSON returns a value as JSON text; field is named in the error when it is none.
func toJSON(value any, field string) (string, error) {
	if raw, ok := value.(json.RawMessage); ok {
		// As it is, because a marshalled copy is compacted and checked, but a text with bytes that are no UTF-8 passes.
		if !utf8.Valid(raw) {
			return "", usage(field, "`%s` has bytes that are not UTF-8.", field)
		}
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return "", usage(field, "`%s` is not a JSON value: %w.", field, err)
	}
	return strings.TrimSuffix(text.String(), "\n"), nil
}

func toPayload(value any, field string) (*belayv1.Payload, error) {
	text, err := toJSON(value, field)
	if err != nil {
		return nil, err
	}
	return &belayv1.Payload{Content: &belayv1.Payload_Json{Json: text}}, nil
}

func fromPayload(payload *belayv1.Payload) Value {
	if blob := payload.GetBlob(); blob != nil {
		return Value{blob: &Blob{blob.Digest, blob.SizeBytes, blob.MediaType, blob.Redacted}}
	}
	return Value{json: payload.GetJson()}
}

// fromTime returns a timestamp in UTC; the zero time when it is unset.
func fromTime(stamp *timestamppb.Timestamp) time.Time {
	if stamp == nil {
		return time.Time{}
	}
	return stamp.AsTime()
}

func fromDuration(duration *durationpb.Duration) time.Duration {
	if duration == nil {
		return 0
	}
	return duration.AsDuration()
}

// enumWord returns the word of an enum's value without its prefix; the number as text when a newer server sends an unknown one.
func enumWord(value protoreflect.Enum, prefix string) string {
	found := value.Descriptor().Values().ByNumber(value.Number())
	if found == nil {
		return strconv.Itoa(int(value.Number()))
	}
	word := strings.TrimPrefix(string(found.Name()), prefix)
	if word == "UNSPECIFIED" {
		return ""
	}
	return word
}

// enumNumber returns the value of an enum by its word, in any case, with or without its prefix.
func enumNumber(enum protoreflect.Enum, word, prefix, field string) (protoreflect.EnumNumber, error) {
	values := enum.Descriptor().Values()
	name := prefix + strings.TrimPrefix(strings.ToUpper(word), prefix)
	if found := values.ByName(protoreflect.Name(name)); found != nil && found.Number() != 0 {
		return found.Number(), nil
	}
	var words []string
	for i := range values.Len() {
		if values.Get(i).Number() != 0 {
			words = append(words, strings.TrimPrefix(string(values.Get(i).Name()), prefix))
		}
	}
	return 0, usage(field, "`%s` is %q, and has to be one of %s.", field, word, strings.Join(words, ", "))
}

func itoa(number int64) string { return strconv.FormatInt(number, 10) }

// int32Of returns a number for a field of 32 bits. One that does not fit becomes the nearest, which the server refuses.
func int32Of(number int) int32 { return int32(max(math.MinInt32, min(number, math.MaxInt32))) }
