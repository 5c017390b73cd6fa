package contract

import (
	"encoding/json"
	"errors"
	"iter"
	"strings"
	"sync"

	"belay.dev/go"
)

// Client is the client under test: this module's, where a hook is nil, or one with a fault.
type Client struct {
	// Name is what is printed.
	Name string
	// Events takes the place of the events of an execution.
	Events func(iter.Seq2[*belay.Event, error]) iter.Seq2[*belay.Event, error]
	// Decide changes an approval before it is decided.
	Decide func(*belay.Approval)
	// Result takes the place of the outputs of a plan.
	Result func(any) any
	// Validate takes the place of a call that is no read.
	Validate func(call func() error) error
}

// Clients returns the clients by name: `go`, and those with a planted fault, which the cases have to find.
func Clients() map[string]Client {
	all := map[string]Client{}
	for _, one := range []Client{{Name: "go"}, dropsAnEvent(), repeatsAnEvent(), oldDigest(), retriesEverything(), losesDigits()} {
		all[one.Name] = one
	}
	return all
}

// dropsAnEvent leaves out the third event of each execution.
func dropsAnEvent() Client {
	return Client{Name: "drops-an-event", Events: func(events iter.Seq2[*belay.Event, error]) iter.Seq2[*belay.Event, error] {
		return func(yield func(*belay.Event, error) bool) {
			for event, err := range events {
				if err == nil && event.Sequence == 3 {
					continue
				}
				if !yield(event, err) {
					return
				}
			}
		}
	}}
}

// repeatsAnEvent shows the second event of each execution twice.
func repeatsAnEvent() Client {
	return Client{Name: "repeats-an-event", Events: func(events iter.Seq2[*belay.Event, error]) iter.Seq2[*belay.Event, error] {
		return func(yield func(*belay.Event, error) bool) {
			for event, err := range events {
				if !yield(event, err) || err == nil && event.Sequence == 2 && !yield(event, nil) {
					return
				}
			}
		}
	}}
}

// oldDigest decides all approvals of an execution by the digest of the first one.
func oldDigest() Client {
	var lock sync.Mutex
	digests := map[string]string{}
	return Client{Name: "old-digest", Decide: func(approval *belay.Approval) {
		lock.Lock()
		defer lock.Unlock()
		first, ok := digests[approval.Execution]
		if !ok {
			first = approval.Digest
			digests[approval.Execution] = first
		}
		approval.Digest = first
	}}
}

// retriesEverything sends again what is not safe to send again.
func retriesEverything() Client {
	return Client{Name: "retries-everything", Validate: func(call func() error) error {
		err := call()
		if errors.Is(err, belay.Unavailable) {
			err = call()
		}
		return err
	}}
}

// losesDigits reads whole numbers as doubles.
func losesDigits() Client {
	return Client{Name: "loses-digits", Result: func(value any) any {
		outputs, ok := value.(map[string]any)
		if !ok {
			return value
		}
		lossy := map[string]any{}
		for name, one := range outputs {
			lossy[name] = one
			if number, ok := one.(json.Number); ok && !strings.ContainsAny(string(number), ".eE") {
				float, _ := number.Float64()
				lossy[name] = float
			}
		}
		return lossy
	}}
}
