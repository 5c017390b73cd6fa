package belay_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"belay.dev/go"
	"belay.dev/go/belayv1"
)

// authority is a certificate authority in a folder of the test.
type authority struct {
	folder string
	key    *ecdsa.PrivateKey
	cert   *x509.Certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{folder: t.TempDir()}
	a.key = got[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, Subject: pkix.Name{CommonName: "tests"}}
	raw := got[[]byte](t)(x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key))
	a.cert = got[*x509.Certificate](t)(x509.ParseCertificate(raw))
	write(t, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})), a.ca())
	return a
}

func (a *authority) ca() string { return filepath.Join(a.folder, "ca.pem") }

// issue writes a certificate for a name and its key, and returns their paths.
func (a *authority) issue(t *testing.T, name string) (string, string) {
	t.Helper()
	key := got[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{SerialNumber: big.NewInt(2), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{name}}
	raw := got[[]byte](t)(x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key))
	private := got[[]byte](t)(x509.MarshalPKCS8PrivateKey(key))
	cert, keyPath := filepath.Join(a.folder, name+".pem"), filepath.Join(a.folder, name+".key")
	write(t, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})), cert)
	write(t, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})), keyPath)
	return cert, keyPath
}

// tlsProxy ends TLS in front of a server on TCP, as a proxy would, and returns its address. With clientCA it asks for a client's certificate.
func (a *authority) tlsProxy(t *testing.T, target, name string, clientCA *authority) string {
	t.Helper()
	cert, key := a.issue(t, name)
	config := &tls.Config{Certificates: []tls.Certificate{got[tls.Certificate](t)(tls.LoadX509KeyPair(cert, key))}, NextProtos: []string{"h2"}}
	if clientCA != nil {
		config.ClientCAs, config.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		config.ClientCAs.AddCert(clientCA.cert)
	}
	listener := got[net.Listener](t)(tls.Listen("tcp", "127.0.0.1:0", config))
	var group sync.WaitGroup
	t.Cleanup(func() {
		_ = listener.Close()
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
			there, err := net.Dial("tcp", strings.TrimPrefix(target, "http://"))
			if err != nil {
				_ = here.Close()
				continue
			}
			for _, pair := range [][2]net.Conn{{here, there}, {there, here}} {
				group.Add(1)
				go func() {
					defer group.Done()
					_, _ = io.Copy(pair[0], pair[1])
					_, _ = pair[0].Close(), pair[1].Close()
				}()
			}
		}
	}()
	return fmt.Sprintf("https://localhost:%d", listener.Addr().(*net.TCPAddr).Port)
}

func startsAndEnds(t *testing.T, client *belay.Client) {
	t.Helper()
	var result struct{ Value int }
	must(t, start(t, client, noop(1)).Result(within(t), &result))
	equal(t, result.Value, 1)
}

func TestOverTCPWithAToken(t *testing.T) {
	server, _ := live(t)
	client := connect(t, belay.WithURL(server.HTTPURL()), belay.WithToken(got[string](t)(server.Token())))
	startsAndEnds(t, client)
}

func TestTLSAndMTLS(t *testing.T) {
	server, _ := live(t)
	token := belay.WithToken(got[string](t)(server.Token()))
	a := newAuthority(t)
	cert, key := a.issue(t, "client.example.com")
	url := a.tlsProxy(t, server.HTTPURL(), "localhost", nil)
	startsAndEnds(t, connect(t, belay.WithURL(url), token, belay.WithTLS(belay.TLS{CA: a.ca()})))
	// Without the authority the server is not trusted.
	_, err := handleOf(t, connect(t, belay.WithURL(url), token, belay.WithRetryFor(0))).Get(within(t))
	contains(t, refused(t, err, "SERVER_UNREACHABLE").Message, url)

	url = a.tlsProxy(t, server.HTTPURL(), "localhost", a)
	startsAndEnds(t, connect(t, belay.WithURL(url), token, belay.WithTLS(belay.TLS{CA: a.ca(), Cert: cert, KeyPEM: []byte(read(t, key))})))
	_, err = handleOf(t, connect(t, belay.WithURL(url), token, belay.WithTLS(belay.TLS{CA: a.ca()}), belay.WithRetryFor(0))).Get(within(t))
	if !errors.Is(err, belay.Unavailable) {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"SERVER": url, "TOKEN": got[string](t)(server.Token()), "TLS_CA": a.ca(), "TLS_CERT": cert, "TLS_KEY": key} {
		t.Setenv("BELAY_"+name, value)
	}
	startsAndEnds(t, connect(t))
}

func TestAnotherNameInTheCertificate(t *testing.T) {
	server, _ := live(t)
	token := belay.WithToken(got[string](t)(server.Token()))
	a := newAuthority(t)
	url := a.tlsProxy(t, server.HTTPURL(), "belay.example.com", nil)
	_, err := handleOf(t, connect(t, belay.WithURL(url), token, belay.WithTLS(belay.TLS{CA: a.ca()}), belay.WithRetryFor(0))).Get(within(t))
	if !errors.Is(err, belay.Unavailable) {
		t.Fatal(err)
	}
	startsAndEnds(t, connect(t, belay.WithURL(url), token, belay.WithTLS(belay.TLS{CA: a.ca(), ServerName: "belay.example.com"})))
}

func TestSettingsComeFromOptionsThenTheEnvironment(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("XDG_STATE_HOME", "/state")
	equal(t, connect(t).URL(), "unix:/state/belay/executor.sock")
	t.Setenv("BELAY_STATE_DIR", folder)
	equal(t, connect(t).URL(), "unix:"+folder+"/executor.sock")
	server, _ := script(t, `{"GetExecution": [{"send": [{"name": "`+name+`"}]}]}`)
	gate, _ := script(t, `{"GetApproval": [{"send": [{"name": "namespaces/team/approvals/a"}]}]}`)
	t.Setenv("BELAY_SERVER", server.URL)
	t.Setenv("BELAY_GATE", gate.URL)
	t.Setenv("BELAY_TOKEN", "t")
	t.Setenv("BELAY_NAMESPACE", "team")
	client := connect(t)
	equal(t, []string{client.URL(), client.Namespace()}, []string{server.URL, "team"})
	got[*belay.ExecutionInfo](t)(handleOf(t, client).Get(within(t)))
	got[*belay.Approval](t)(client.Approvals().Get(within(t), "a"))
	equal(t, server.Requests("GetExecution")[0].Metadata.Get("authorization"), []string{"Bearer t"})
	equal(t, gate.Requests("GetApproval")[0].Message.(*belayv1.GetApprovalRequest).Name, "namespaces/team/approvals/a")

	both, _ := script(t, `{"GetApproval": [{"send": [{"name": "namespaces/other/approvals/a"}]}]}`)
	named := connect(t, belay.WithURL(both.URL), belay.WithToken("u"), belay.WithNamespace("other"))
	got[*belay.Approval](t)(named.Approvals().Get(within(t), "a"))
	request := both.Requests("GetApproval")[0]
	equal(t, request.Metadata.Get("authorization"), []string{"Bearer u"})
	equal(t, request.Message.(*belayv1.GetApprovalRequest).Name, "namespaces/other/approvals/a")
}

func TestAGateBesideAServerOfAnotherKind(t *testing.T) {
	for _, one := range [][2]string{{"unix:/x", "https://h:1"}, {"https://h:1", "unix:/x"}} {
		connect(t, belay.WithURL(one[0]), belay.WithGate(one[1]))
	}
}

func TestATokenIsSentInPlainTextOnlyOnPurpose(t *testing.T) {
	remote := belay.WithURL("http://server.example.com:7433")
	_, err := belay.Connect(t.Context(), remote, belay.WithToken("secret"))
	message := refused(t, err, "INVALID_USAGE").Error()
	contains(t, message, "without encryption")
	if strings.Contains(message, "secret") {
		t.Fatal("the message has the token")
	}
	connect(t, remote, belay.WithToken("secret"), belay.WithPlainText())
	connect(t, remote)
	for _, local := range []string{"http://127.0.0.1:7433", "http://localhost:7433", "http://[::1]:7433/", "unix:/x", "unix:///x"} {
		connect(t, belay.WithURL(local), belay.WithToken("secret"))
	}
}

func TestSettingsThatAreNotValidAreNamed(t *testing.T) {
	x := belay.WithURL("unix:/x")
	for _, one := range []struct {
		field   string
		options []belay.ConnectOption
	}{
		{"namespace", []belay.ConnectOption{x, belay.WithNamespace("No Such")}},
		{"namespace", []belay.ConnectOption{x, belay.WithNamespace("")}},
		{"timeout", []belay.ConnectOption{x, belay.WithTimeout(0)}},
		{"retry_for", []belay.ConnectOption{x, belay.WithRetryFor(-1)}},
		{"heartbeat", []belay.ConnectOption{x, belay.WithHeartbeat(time.Millisecond)}},
		{"heartbeat", []belay.ConnectOption{x, belay.WithHeartbeat(time.Hour)}},
		{"token", []belay.ConnectOption{x, belay.WithToken("with space")}},
		{"token", []belay.ConnectOption{x, belay.WithToken("")}},
		{"tls", []belay.ConnectOption{x, belay.WithTLS(belay.TLS{})}},
		{"tls", []belay.ConnectOption{belay.WithURL("https://h:1"), belay.WithPlainText()}},
		{"tls.ca", []belay.ConnectOption{belay.WithURL("https://h:1"), belay.WithTLS(belay.TLS{CA: filepath.Join(t.TempDir(), "none.pem")})}},
		{"tls.ca", []belay.ConnectOption{belay.WithURL("https://h:1"), belay.WithTLS(belay.TLS{CAPEM: []byte("x")})}},
		{"tls.key", []belay.ConnectOption{belay.WithURL("https://h:1"), belay.WithTLS(belay.TLS{CertPEM: []byte("x")})}},
		{"gate", []belay.ConnectOption{x, belay.WithGate("nowhere")}},
	} {
		_, err := belay.Connect(t.Context(), one.options...)
		equal(t, refused(t, err, "INVALID_USAGE").Fields[0].Field, one.field)
		contains(t, err.Error(), "INVALID_USAGE: docs/errors.md#invalid_usage")
	}
	for _, url := range []string{"", "h:1", "unix:b.sock", "http://h", "http://:1", "http://h:99999", "http://h:0", "http://h:1/x", "ftp://h:1", "http://a@h:1"} {
		_, err := belay.Connect(t.Context(), belay.WithURL(url))
		equal(t, refused(t, err, "INVALID_USAGE").Fields[0].Field, "url")
	}
	_, err := belay.Connect(t.Context(), belay.WithURL("https://h:1"), belay.WithTLS(belay.TLS{CA: "/none.pem"}))
	if !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := belay.Connect(cancelled, x); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

func TestAServerThatIsNotThere(t *testing.T) {
	_, err := handleOf(t, connect(t, belay.WithURL("unix:/nowhere/belay.sock"), belay.WithRetryFor(200*time.Millisecond))).Get(within(t))
	contains(t, refused(t, err, "SERVER_UNREACHABLE").Message, "unix:/nowhere/belay.sock")
}

type traceKey struct{}

func TestTheCallersTraceIsPassedOn(t *testing.T) {
	server, client := script(t, `{"GetExecution": [{"send": [{"name": "`+name+`"}]}], "WatchExecution": [{"send": [`+event(1, "executionFinished")+`]}]}`,
		belay.WithToken("t"), belay.WithPropagator(func(ctx context.Context, set func(key, value string)) {
			if trace, ok := ctx.Value(traceKey{}).(string); ok {
				set("Traceparent", trace)
				set("tracestate", "")
				set("baggage", "private=1")
			}
		}))
	got[*belay.ExecutionInfo](t)(handleOf(t, client).Get(within(t)))
	inside := context.WithValue(within(t), traceKey{}, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	got[*belay.ExecutionInfo](t)(handleOf(t, client).Get(inside))
	got[[]*belay.Event](t)(belay.Collect(handleOf(t, client).Events(inside)))
	requests := append(server.Requests("GetExecution"), server.Requests("WatchExecution")...)
	equal(t, len(requests[0].Metadata.Get("traceparent")), 0)
	for _, request := range requests[1:] {
		equal(t, request.Metadata.Get("traceparent"), []string{"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"})
		equal(t, len(request.Metadata.Get("baggage"))+len(request.Metadata.Get("tracestate")), 0)
		equal(t, request.Metadata.Get("authorization"), []string{"Bearer t"})
		equal(t, request.Metadata.Get("belay-contract"), []string{fmt.Sprint(belay.ContractRevision)})
		contains(t, request.Metadata.Get("user-agent")[0], "belay-go/"+belay.Version)
	}
}

func TestTheRevisionIsTheContracts(t *testing.T) {
	found := regexp.MustCompile(`REVISION: u32 = (\d+);`).FindStringSubmatch(read(t, repository(t), "proto/src/contract.rs"))
	equal(t, found[1], fmt.Sprint(belay.ContractRevision))
}
