package belay

import (
	"context"
	"errors"
	"iter"
)

// watchStream returns the iterator over a watch. It reconnects at its cursor when the connection is lost, for as long as reconnectFor allows without a
// message; then it yields the error, and is over. make returns a new watch, so that each range loop is one of its own.
func watchStream[T any](ctx context.Context, t *transport, name string, make func() (watcher[T], error)) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		watch, err := make()
		if err != nil {
			yield(nil, err)
			return
		}
		// Leaving the loop, also by a panic, ends the stream.
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		reconnection := newReconnection(t.settings.reconnectFor)
		for {
			if item := watch.restart(); item != nil && !yield(item, nil) {
				return
			}
			done, err := follow(ctx, t, name, watch, reconnection, yield)
			if done {
				return
			}
			if ended := contextError(ctx); ended != nil {
				yield(nil, ended)
				return
			}
			if errors.Is(err, errGap) {
				err = nil
			}
			delay, again := reconnection.delayAfter(err)
			if !again {
				if err == nil {
					err = &Error{
						Code: Unavailable, Reason: "SERVER_UNREACHABLE", Message: "The server ends the watch again and again, although it is not complete.",
					}
				}
				yield(nil, err)
				return
			}
			if err := sleep(ctx, delay); err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// follow reads one connection of a watch. It returns true when the watch is over: the reader has left, or it is complete.
func follow[T any](
	ctx context.Context, t *transport, name string, watch watcher[T], reconnection *reconnection, yield func(*T, error) bool,
) (bool, error) {
	stream, err := t.open(ctx, name, watch.request(), silenceOf(t.settings.heartbeat))
	if err != nil {
		return false, err
	}
	defer stream.cancel()
	for {
		message, err := stream.read()
		if err != nil {
			return false, err
		}
		if message == nil {
			return watch.isComplete(), nil
		}
		reconnection.contact()
		item, err := watch.take(message)
		if err != nil {
			return false, err
		}
		if item != nil {
			if !yield(item, nil) {
				return true, nil
			}
			// The time that the reader took is no silence of the server.
			reconnection.contact()
		}
	}
}

// paged returns the iterator over a list; fetch returns a page and the token of the next one, which is empty after the last.
func paged[T any](fetch func(token string) ([]T, string, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		token := ""
		for {
			entries, next, err := fetch(token)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, entry := range entries {
				if !yield(entry, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			token = next
		}
	}
}

// failed returns an iterator that yields one error.
func failed[T any](err error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		yield(none, err)
	}
}

// Collect returns all entries of an iterator, such as a list, or the first error.
func Collect[T any](entries iter.Seq2[T, error]) ([]T, error) {
	var all []T
	for entry, err := range entries {
		if err != nil {
			return nil, err
		}
		all = append(all, entry)
	}
	return all, nil
}
