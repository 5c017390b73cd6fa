package belay

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

var (
	namespacePattern = regexp.MustCompile(`^(-|[a-z0-9][a-z0-9-]{0,63})$`)
	tokenPattern     = regexp.MustCompile(`^[\x21-\x7e]+$`)
	urlPattern       = regexp.MustCompile(`^(https?)://(\[[0-9a-fA-F:.%]+\]|[^/:\[\]@\s]+):(\d{1,5})/?$`)
)

// TLS has the certificates of a connection over TLS. Each is the path of a PEM file, or its content where the field ends in PEM.
type TLS struct {
	// CA are the authorities of the server's certificate; without them those of the system are used.
	CA    string
	CAPEM []byte
	// Cert and Key are the client's own, for servers that ask for one (mTLS): both or neither.
	Cert    string
	CertPEM []byte
	Key     string
	KeyPEM  []byte
	// ServerName is the name in the server's certificate, where it is not the host of the address.
	ServerName string
}

// config returns the certificates as crypto/tls takes them.
func (t TLS) config() (*tls.Config, error) {
	ca, err := pem(t.CA, t.CAPEM, "tls.ca")
	if err != nil {
		return nil, err
	}
	cert, err := pem(t.Cert, t.CertPEM, "tls.cert")
	if err != nil {
		return nil, err
	}
	key, err := pem(t.Key, t.KeyPEM, "tls.key")
	if err != nil {
		return nil, err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if ca != nil {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(ca) {
			return nil, usage("tls.ca", "`tls.ca` has no certificate in PEM.")
		}
	}
	switch {
	case cert == nil && key != nil:
		return nil, usage("tls.cert", "`tls.cert` is missing: a client's certificate needs both `cert` and `key`.")
	case cert != nil && key == nil:
		return nil, usage("tls.key", "`tls.key` is missing: a client's certificate needs both `cert` and `key`.")
	case cert != nil:
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return nil, usage("tls.cert", "`tls.cert` and `tls.key` are no pair in PEM: %w.", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

func pem(path string, content []byte, field string) ([]byte, error) {
	if path == "" {
		return content, nil
	}
	if content != nil {
		return nil, usage(field, "`%s` is given as a path and as PEM: give one.", field)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, usage(field, "`%s` cannot be read: %w.", field, err)
	}
	return content, nil
}

// address is an address of a server as gRPC takes it.
type address struct {
	// url is the address as people write it.
	url string
	// target is that of the channel.
	target string
	// isEncrypted tells TLS from plain text. isLocal says that no other machine can read the connection: a unix socket or the loopback interface.
	isEncrypted, isLocal, isUnix bool
}

// parseAddress reads an address as people write it; name is that of the argument, for the error.
func parseAddress(url, name string) (address, error) {
	if path, ok := strings.CutPrefix(url, "unix:"); ok {
		if strings.HasPrefix(path, "//") {
			path = path[2:]
		}
		if !strings.HasPrefix(path, "/") {
			return address{}, usage(name, "`%s` is %q: the path of a socket is absolute, unix:/path/to/socket.", name, url)
		}
		return address{url: "unix:" + path, target: "unix:" + path, isLocal: true, isUnix: true}, nil
	}
	match := urlPattern.FindStringSubmatch(url)
	port := 0
	if match != nil {
		port, _ = strconv.Atoi(match[3])
	}
	if port < 1 || port > 65535 {
		return address{}, usage(name, "`%s` is %q: write unix:/path/to/socket, http://host:port or https://host:port.", name, url)
	}
	host := match[2]
	return address{
		url:         match[1] + "://" + host + ":" + match[3],
		target:      "dns:///" + host + ":" + match[3],
		isEncrypted: match[1] == "https",
		isLocal:     isLoopback(strings.Trim(host, "[]")),
	}, nil
}

func isLoopback(host string) bool {
	if ip := net.ParseIP(host); ip != nil {
		return ip.IsLoopback()
	}
	return host == "localhost"
}

// settings are all settings of a client.
type settings struct {
	server, gate                               address
	namespace, token                           string
	tls                                        *TLS
	timeout, retryFor, reconnectFor, heartbeat time.Duration
	propagator                                 func(context.Context, func(key, value string))
}

// connectOptions are what the caller of Connect has given; what is nil comes from the environment.
type connectOptions struct {
	url, gate, token, namespace                *string
	tls                                        *TLS
	plain                                      bool
	timeout, retryFor, reconnectFor, heartbeat time.Duration
	propagator                                 func(context.Context, func(key, value string))
}

// ConnectOption is an option of [Connect].
type ConnectOption func(*connectOptions)

// WithURL names the server: unix:/path, http://host:port or https://host:port. Without it: BELAY_SERVER, else the socket in the state directory of this
// user (BELAY_STATE_DIR, $XDG_STATE_HOME/belay or ~/.local/state/belay).
func WithURL(url string) ConnectOption { return func(o *connectOptions) { o.url = &url } }

// WithToken gives the token for a server over TCP. Without it: BELAY_TOKEN. Over http:// it is sent to this machine only, unless [WithPlainText] is given.
func WithToken(token string) ConnectOption { return func(o *connectOptions) { o.token = &token } }

// WithTLS gives the certificates for https://. Without it: the PEM files that BELAY_TLS_CA, BELAY_TLS_CERT and BELAY_TLS_KEY name.
func WithTLS(tls TLS) ConnectOption { return func(o *connectOptions) { o.tls = &tls } }

// WithPlainText sends the token over http:// to other machines too, where everybody on the way can read it.
func WithPlainText() ConnectOption { return func(o *connectOptions) { o.plain = true } }

// WithNamespace names the namespace of the executions. Without it: BELAY_NAMESPACE, else `default`. `-` reads those of all namespaces.
func WithNamespace(namespace string) ConnectOption {
	return func(o *connectOptions) { o.namespace = &namespace }
}

// WithGate names the approval gate, where it is not at the server's address. Without it and without WithURL: BELAY_GATE.
func WithGate(url string) ConnectOption { return func(o *connectOptions) { o.gate = &url } }

// WithTimeout bounds each call; the default is 30 s. A context with an earlier deadline bounds it too.
func WithTimeout(d time.Duration) ConnectOption { return func(o *connectOptions) { o.timeout = d } }

// WithRetryFor says for how long a call that is safe to repeat is repeated while the server does not answer; the default is 10 s.
func WithRetryFor(d time.Duration) ConnectOption { return func(o *connectOptions) { o.retryFor = d } }

// WithReconnectFor says for how long watches and waits connect again without success; the default is 60 s.
func WithReconnectFor(d time.Duration) ConnectOption {
	return func(o *connectOptions) { o.reconnectFor = d }
}

// WithHeartbeat says how often the server shows on a quiet watch that it is there, between 0.1 s and 600 s; the default is 10 s.
func WithHeartbeat(d time.Duration) ConnectOption { return func(o *connectOptions) { o.heartbeat = d } }

// WithPropagator passes the caller's place in its trace on with each call: inject sets `traceparent` and `tracestate` (W3C Trace Context) from the context of
// the call. Other keys are left out. With OpenTelemetry it is
//
//	func(ctx context.Context, set func(key, value string)) {
//		carrier := propagation.MapCarrier{}
//		otel.GetTextMapPropagator().Inject(ctx, carrier)
//		for key, value := range carrier {
//			set(key, value)
//		}
//	}
func WithPropagator(inject func(ctx context.Context, set func(key, value string))) ConnectOption {
	return func(o *connectOptions) { o.propagator = inject }
}

// resolve returns the settings from options, then the BELAY_* variables, then the state directory of this user.
func resolve(options []ConnectOption) (*settings, error) {
	o := connectOptions{timeout: 30 * time.Second, retryFor: 10 * time.Second, reconnectFor: 60 * time.Second, heartbeat: 10 * time.Second}
	for _, option := range options {
		option(&o)
	}
	s := &settings{timeout: o.timeout, retryFor: o.retryFor, reconnectFor: o.reconnectFor, heartbeat: o.heartbeat, propagator: o.propagator}
	var err error
	if o.url != nil {
		s.server, err = parseAddress(*o.url, "url")
	} else {
		s.server, err = serverOfEnvironment()
	}
	if err != nil {
		return nil, err
	}
	s.gate = s.server
	switch variable := os.Getenv("BELAY_GATE"); {
	case o.gate != nil:
		s.gate, err = parseAddress(*o.gate, "gate")
	case o.url == nil && variable != "":
		// The variable belongs to the server of the environment, not to one that was named.
		s.gate, err = parseAddress(variable, "BELAY_GATE")
	}
	if err != nil {
		return nil, err
	}
	s.token = os.Getenv("BELAY_TOKEN")
	if o.token != nil {
		s.token = *o.token
	}
	if (o.token != nil || s.token != "") && !tokenPattern.MatchString(s.token) {
		return nil, usage("token", "`token` is empty or has characters that no token has.")
	}
	s.namespace = orElse(os.Getenv("BELAY_NAMESPACE"), "default")
	if o.namespace != nil {
		s.namespace = *o.namespace
	}
	if !namespacePattern.MatchString(s.namespace) {
		return nil, usage("namespace", "`namespace` is %q: use 1 to 64 lower-case letters, digits and `-`, beginning with a letter or a digit.", s.namespace)
	}
	if err := s.checkTimes(); err != nil {
		return nil, err
	}
	s.tls = o.tls
	if s.tls == nil && s.server.isEncrypted {
		found := TLS{CA: os.Getenv("BELAY_TLS_CA"), Cert: os.Getenv("BELAY_TLS_CERT"), Key: os.Getenv("BELAY_TLS_KEY")}
		if found.CA != "" || found.Cert != "" || found.Key != "" {
			s.tls = &found
		}
	}
	for _, one := range []address{s.server, s.gate} {
		if err := s.check(one, o.plain); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *settings) checkTimes() error {
	for _, one := range []struct {
		name        string
		value       time.Duration
		least, most time.Duration
	}{
		{"timeout", s.timeout, 1, 1 << 62},
		{"retry_for", s.retryFor, 0, 1 << 62},
		{"reconnect_for", s.reconnectFor, 0, 1 << 62},
		{"heartbeat", s.heartbeat, 100 * time.Millisecond, 600 * time.Second},
	} {
		switch {
		case one.value < one.least && one.name != "heartbeat":
			return usage(one.name, "`%s` is %s: it is a time of %s or more.", one.name, one.value, one.least)
		case one.value < one.least || one.value > one.most:
			return usage(one.name, "`%s` is %s: it is between %s and %s.", one.name, one.value, one.least, one.most)
		}
	}
	return nil
}

func (s *settings) check(to address, plain bool) error {
	switch {
	case s.tls != nil && !to.isEncrypted:
		return usage("tls", "TLS is set, and %s is not encrypted: write https://host:port.", to.url)
	case plain && to.isEncrypted:
		return usage("tls", "Plain text is asked for, and %s is encrypted: write http://host:port.", to.url)
	case s.token != "" && !to.isEncrypted && !to.isLocal && !plain:
		return usage("url", "The token would be sent to %s without encryption, and everybody on the way could read it: "+
			"use https://, or WithPlainText to send it all the same.", to.url)
	}
	return nil
}

// addressOf returns the address at which a service of the contract is reached, by the service's name.
func (s *settings) addressOf(service string) address {
	if service == "ApprovalService" || service == "PolicyService" {
		return s.gate
	}
	return s.server
}

func serverOfEnvironment() (address, error) {
	if server := os.Getenv("BELAY_SERVER"); server != "" {
		return parseAddress(server, "BELAY_SERVER")
	}
	folder := os.Getenv("BELAY_STATE_DIR")
	if folder == "" {
		state := os.Getenv("XDG_STATE_HOME")
		if state == "" {
			home, err := os.UserHomeDir()
			if err != nil {
				return address{}, usage("url", "No server is named, and there is no home directory to find one in: set BELAY_SERVER.")
			}
			state = filepath.Join(home, ".local", "state")
		}
		folder = filepath.Join(state, "belay")
	}
	path, err := filepath.Abs(filepath.Join(folder, "executor.sock"))
	if err != nil {
		return address{}, usage("BELAY_STATE_DIR", "`BELAY_STATE_DIR` cannot be read: %w.", err)
	}
	return parseAddress("unix:"+path, "BELAY_STATE_DIR")
}
