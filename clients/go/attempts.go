package belay

import (
	"math/rand/v2"
	"time"
)

const (
	firstDelay   = 50 * time.Millisecond
	longestDelay = 2 * time.Second
	// streamTimeout is the age at which an open stream is replaced by one that continues at its cursor, so that every call has a deadline.
	streamTimeout = 600 * time.Second
	// missingHeartbeats may be missing before a connection counts as lost; silenceMargin is the most that is added for a slow machine.
	missingHeartbeats = 2
	silenceMargin     = 5 * time.Second
)

// permanent are the reasons with the code UNAVAILABLE that no repetition helps; docs/errors.md has them as not retryable.
var permanent = map[string]bool{"FENCED": true, "STORE_CORRUPT": true, "STORE_GONE": true, "STORE_BEHIND": true, "STORE_NEWER": true, "STORE_OLDER": true}

// delays is a growing delay with jitter.
type delays struct{ delay time.Duration }

func (b *delays) next(atLeast time.Duration) time.Duration {
	if b.delay == 0 {
		b.delay = firstDelay
	}
	delay := time.Duration(float64(b.delay) * (0.5 + rand.Float64()/2))
	b.delay = min(b.delay*2, longestDelay)
	return max(delay, atLeast)
}

// attempts are those at one call.
type attempts struct {
	lastRetry  time.Time
	repeatable bool
	delays     delays
}

func newAttempts(timeout, retryFor time.Duration, repeatable bool) *attempts {
	return &attempts{lastRetry: time.Now().Add(min(timeout, retryFor)), repeatable: repeatable}
}

// delayAfter returns the time after which the call is made again, and whether it is.
func (a *attempts) delayAfter(err error) (time.Duration, bool) {
	found := asError(err)
	if found == nil {
		return 0, false
	}
	refused := found.Code == ResourceExhausted && found.hasDelay
	lost := found.Code == Unavailable && !permanent[found.Reason]
	if !refused && !(lost && a.repeatable) {
		return 0, false
	}
	delay := a.delays.next(found.RetryAfter)
	return delay, time.Now().Add(delay).Before(a.lastRetry)
}

// reconnection has the delays between the connections of one stream. A message starts them anew.
type reconnection struct {
	limit       time.Duration
	lastContact time.Time
	delays      delays
}

func newReconnection(limit time.Duration) *reconnection {
	return &reconnection{limit: limit, lastContact: time.Now()}
}

// contact says that a message has come.
func (r *reconnection) contact() {
	r.lastContact = time.Now()
	r.delays = delays{}
}

// delayAfter returns the time after which the stream is opened again, and whether it is. A nil error means that the stream was cut.
func (r *reconnection) delayAfter(err error) (time.Duration, bool) {
	var atLeast time.Duration
	if err != nil {
		found := asError(err)
		if found == nil || !isInterruption(found) {
			return 0, false
		}
		atLeast = found.RetryAfter
	}
	delay := r.delays.next(atLeast)
	return delay, time.Now().Add(delay).Sub(r.lastContact) < r.limit
}

func isInterruption(err *Error) bool {
	switch err.Code {
	case Unavailable:
		return !permanent[err.Reason]
	case ResourceExhausted:
		return err.hasDelay
	case Cancelled, DeadlineExceeded, Internal, Unknown:
		// Without a reason of Belay's these come from the connection or a proxy: a reset stream, a deadline of an open stream.
		return err.Reason == string(err.Code)
	}
	return false
}

// silenceOf returns the time without a message after which a stream with this heartbeat counts as lost.
func silenceOf(heartbeat time.Duration) time.Duration {
	return heartbeat*missingHeartbeats + min(heartbeat*10, silenceMargin)
}
