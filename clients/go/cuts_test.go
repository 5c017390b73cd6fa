package belay_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"belay.dev/go"
)

// cuttingProxy forwards connections to a unix socket and cuts each after so many bytes of answers; after the last size none is cut.
type cuttingProxy struct {
	url  string
	lock sync.Mutex
	cuts int
}

func newCuttingProxy(t *testing.T, path string, sizes []int64) *cuttingProxy {
	t.Helper()
	listener := got[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	proxy := &cuttingProxy{url: "http://" + listener.Addr().String()}
	var group sync.WaitGroup
	var open []net.Conn
	t.Cleanup(func() {
		_ = listener.Close()
		proxy.lock.Lock()
		for _, one := range open {
			_ = one.Close()
		}
		proxy.lock.Unlock()
		group.Wait()
	})
	group.Add(1)
	go func() {
		defer group.Done()
		for {
			here, err := listener.Accept()
			if err != nil {
				return
			}
			there, err := net.Dial("unix", path)
			if err != nil {
				_ = here.Close()
				continue
			}
			limit := int64(-1)
			if len(sizes) > 0 {
				limit, sizes = sizes[0], sizes[1:]
			}
			proxy.lock.Lock()
			open = append(open, here, there)
			proxy.lock.Unlock()
			group.Add(2)
			go func() {
				defer group.Done()
				_, _ = io.Copy(there, here)
				_ = there.Close()
			}()
			go func() {
				defer group.Done()
				answers := io.Reader(there)
				if limit >= 0 {
					answers = io.LimitReader(there, limit)
				}
				if count, _ := io.Copy(here, answers); count == limit {
					proxy.lock.Lock()
					proxy.cuts++
					proxy.lock.Unlock()
				}
				_ = here.Close()
				_ = there.Close()
			}()
		}
	}()
	return proxy
}

func (p *cuttingProxy) cutsSoFar() int {
	p.lock.Lock()
	defer p.lock.Unlock()
	return p.cuts
}

func TestAConnectionThatIsCutAtAnyByte(t *testing.T) {
	server, direct := live(t)
	execution := start(t, direct, chain(30, 0))
	expected := ids(t, got[[]*belay.Event](t)(belay.Collect(execution.Events(within(t)))))
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			source := rand.New(rand.NewPCG(seed, 0))
			var sizes []int64
			for range 12 {
				sizes = append(sizes, 1+source.Int64N(4000))
			}
			proxy := newCuttingProxy(t, strings.TrimPrefix(server.URL(), "unix:"), sizes)
			client := connect(t, belay.WithURL(proxy.url), belay.WithHeartbeat(500*time.Millisecond))
			handle := got[*belay.Execution](t)(client.Execution(execution.Name()))
			equal(t, ids(t, got[[]*belay.Event](t)(belay.Collect(handle.Events(within(t))))), expected)
			equal(t, got[*belay.ExecutionInfo](t)(handle.Wait(within(t))).Succeeded(), true)
			if proxy.cutsSoFar() <= 2 {
				t.Fatal(proxy.cutsSoFar())
			}
		})
	}
}

func TestABlobOverAConnectionThatIsCut(t *testing.T) {
	server, direct := live(t)
	plan := object{"id": "blob", "inputs": object{"x": object{}}, "steps": []object{
		{"id": "a", "tool": "noop", "arguments": object{"output": strings.Repeat("${inputs.x}", 8)}},
	}}
	piece := strings.Repeat("é", 50_000)
	execution := start(t, direct, plan, belay.Inputs(object{"x": piece}))
	got[*belay.ExecutionInfo](t)(execution.Wait(within(t)))
	proxy := newCuttingProxy(t, strings.TrimPrefix(server.URL(), "unix:"), []int64{3000, 90_000, 200_000, 7, 150_000})
	client := connect(t, belay.WithURL(proxy.url))
	handle := got[*belay.Execution](t)(client.Execution(execution.Name()))
	var output string
	must(t, handle.Output(within(t), "a", &output))
	equal(t, output == strings.Repeat(piece, 8), true)
	if proxy.cutsSoFar() < 4 {
		t.Fatal(proxy.cutsSoFar())
	}
}

func TestAServerThatSpeaksSomethingElse(t *testing.T) {
	listener := got[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	defer listener.Close()
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = connection.Write([]byte("HTTP/1.1 400 Bad Request\r\ncontent-length: 5\r\n\r\nhello"))
			_ = connection.Close()
		}
	}()
	client := connect(t, belay.WithURL("http://"+listener.Addr().String()), belay.WithRetryFor(300*time.Millisecond), belay.WithTimeout(3*time.Second))
	_, err := handleOf(t, client).Get(within(t))
	if !errors.Is(err, belay.Unavailable) && !errors.Is(err, belay.Internal) {
		t.Fatal(err)
	}
}
