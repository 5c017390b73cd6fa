// Package belaytest starts a Belay server for tests:
//
//	func TestGreeting(t *testing.T) {
//		server := belaytest.Start(t)
//		execution, err := server.Client(t).Start(t.Context(), plan)
//		…
//	}
//
// The server has a state directory of its own, and ends with the test. A test may kill it and start it again.
package belaytest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"belay.dev/go"
)

const (
	// StartTimeout is how long a server may take to start.
	StartTimeout = 30 * time.Second
	// StopTimeout is how long a server may take to stop before it is killed.
	StopTimeout = 20 * time.Second
)

// ErrNoProgram says that there is no program `belay`.
var ErrNoProgram = errors.New("no program `belay`: set BELAY_PROGRAM to its path")

// FindProgram returns the path of the program `belay`: the one of BELAY_PROGRAM, else the newer build of a checkout around the current folder, else `belay` on
// the PATH. The error is [ErrNoProgram] when there is none, and another one when BELAY_PROGRAM names no program.
func FindProgram() (string, error) {
	if named := os.Getenv("BELAY_PROGRAM"); named != "" {
		path, err := filepath.Abs(named)
		if err == nil && !isProgram(path) {
			err = fmt.Errorf("BELAY_PROGRAM names %s, which is no program", path)
		}
		return path, err
	}
	folder, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if newest := newestBuild(folder); newest != "" {
			return newest, nil
		}
		if folder == filepath.Dir(folder) {
			break
		}
		folder = filepath.Dir(folder)
	}
	path, err := exec.LookPath("belay")
	if err != nil {
		return "", ErrNoProgram
	}
	return path, nil
}

func isProgram(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

func newestBuild(folder string) string {
	if info, err := os.Stat(filepath.Join(folder, "proto", "belay", "v1")); err != nil || !info.IsDir() {
		return ""
	}
	var newest string
	var time time.Time
	for _, kind := range []string{"release", "debug"} {
		path := filepath.Join(folder, "target", kind, "belay")
		if info, err := os.Stat(path); err == nil && isProgram(path) && info.ModTime().After(time) {
			newest, time = path, info.ModTime()
		}
	}
	return newest
}

// Option is an option of [New] and [Start].
type Option func(*Server) error

// Program names the program, in place of what [FindProgram] finds.
func Program(path string) Option {
	return func(s *Server) error {
		s.program = path
		return nil
	}
}

// Policy gives the server a policy, as YAML.
func Policy(text string) Option { return withFile("policy", text) }

// Config gives the server the operator's settings, as YAML.
func Config(text string) Option { return withFile("config", text) }

func withFile(flag, text string) Option {
	return func(s *Server) error {
		path := filepath.Join(s.folder, flag+".yaml")
		s.arguments = append(s.arguments, "--"+flag, path)
		return os.WriteFile(path, []byte(text), 0o600)
	}
}

// Server is a `belay serve` of its own state directory, on a unix socket and on TCP. It ends only the process that it has started. Any number of goroutines use
// it.
type Server struct {
	program, folder string
	arguments       []string

	lock    sync.Mutex
	process *exec.Cmd
	// exited is closed once the process has ended.
	exited  chan struct{}
	httpURL string
}

// Start starts a server that ends with the test, and its state directory with it. Without a program the test is skipped, but it fails where CI is true.
func Start(t testing.TB, options ...Option) *Server {
	t.Helper()
	server, err := New(options...)
	switch {
	case errors.Is(err, ErrNoProgram) && os.Getenv("CI") != "true":
		t.Skip(err)
	case err != nil:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	return server
}

// New makes a server without a test around it. Its Start starts it, and its Close has to be called. The error is [ErrNoProgram] when there is no program.
func New(options ...Option) (*Server, error) {
	// Not a test's own directory, whose path has the test's name: that of a socket has at most 107 bytes.
	folder, err := os.MkdirTemp("", "belay-")
	if err != nil {
		return nil, err
	}
	server := &Server{folder: folder}
	for _, option := range options {
		if err := option(server); err != nil {
			return nil, errors.Join(err, os.RemoveAll(folder))
		}
	}
	if server.program == "" {
		if server.program, err = FindProgram(); err != nil {
			return nil, errors.Join(err, os.RemoveAll(folder))
		}
	}
	return server, nil
}

// Program returns the path of the program.
func (s *Server) Program() string { return s.program }

// StateDir returns the state directory.
func (s *Server) StateDir() string { return filepath.Join(s.folder, "state") }

// URL returns the address of the server's unix socket.
func (s *Server) URL() string { return "unix:" + filepath.Join(s.StateDir(), "executor.sock") }

// HTTPURL returns the address of the server over TCP; empty before the first start.
func (s *Server) HTTPURL() string {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.httpURL
}

// Token returns the token of the owner of the state directory, for TCP.
func (s *Server) Token() (string, error) {
	text, err := os.ReadFile(filepath.Join(s.StateDir(), "token"))
	return strings.TrimSpace(string(text)), err
}

// Environment returns the variables for programs that are to use this server and nothing of the user's.
func (s *Server) Environment() []string {
	var kept []string
	for _, one := range os.Environ() {
		if !strings.HasPrefix(one, "BELAY_") && !strings.HasPrefix(one, "XDG_CONFIG_HOME=") {
			kept = append(kept, one)
		}
	}
	return append(kept, "XDG_CONFIG_HOME="+filepath.Join(s.folder, "config"), "BELAY_STATE_DIR="+s.StateDir())
}

// Start starts the server on its state directory and returns when it answers. After Kill or Stop it continues, on the same port.
func (s *Server) Start() error {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.process != nil {
		return errors.New("the server runs already")
	}
	port := "0"
	if s.httpURL != "" {
		port = s.httpURL[strings.LastIndexByte(s.httpURL, ':')+1:]
	}
	arguments := []string{"serve", "-o", "json", "--state-dir", s.StateDir(), "--listen", "127.0.0.1:" + port}
	process := exec.Command(s.program, append(arguments, s.arguments...)...)
	process.Env = s.Environment()
	logPath := filepath.Join(s.folder, "log")
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	process.Stderr = log
	output, err := process.StdoutPipe()
	if err != nil {
		return err
	}
	if err := process.Start(); err != nil {
		return err
	}
	timer := time.AfterFunc(StartTimeout, func() { _ = process.Process.Kill() })
	var started struct{ Listen string }
	err = json.NewDecoder(output).Decode(&started)
	timer.Stop()
	if err != nil || started.Listen == "" {
		_ = process.Process.Kill()
		_ = process.Wait()
		text, _ := os.ReadFile(logPath)
		return fmt.Errorf("the server has not started: %w\n%s", err, text[max(0, len(text)-2000):])
	}
	exited := make(chan struct{})
	go func() {
		// What it prints is read, so that it never waits for a reader; then its end is taken.
		_, _ = io.Copy(io.Discard, output)
		_ = process.Wait()
		close(exited)
	}()
	s.process, s.exited, s.httpURL = process, exited, started.Listen
	return nil
}

// Kill kills the server at once, as a crash would. One that does not run stays so.
func (s *Server) Kill() error { return s.end(syscall.SIGKILL) }

// Stop stops the server gracefully.
func (s *Server) Stop() error { return s.end(syscall.SIGTERM) }

// Restart kills the server and starts it again on the same state directory.
func (s *Server) Restart() error {
	if err := s.Kill(); err != nil {
		return err
	}
	return s.Start()
}

// Signal sends the server's process a signal, such as SIGSTOP.
func (s *Server) Signal(signal os.Signal) error {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.process == nil {
		return errors.New("the server does not run")
	}
	return s.process.Process.Signal(signal)
}

func (s *Server) end(signal os.Signal) error {
	s.lock.Lock()
	defer s.lock.Unlock()
	process := s.process
	if process == nil {
		return nil
	}
	s.process = nil
	if err := process.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-s.exited:
	case <-time.After(StopTimeout):
		if err := process.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		<-s.exited
	}
	return nil
}

// Close kills the server and deletes its state directory.
func (s *Server) Close() error { return errors.Join(s.Kill(), os.RemoveAll(s.folder)) }

// Connect returns a client of the server over its unix socket. The caller closes it.
func (s *Server) Connect(ctx context.Context, options ...belay.ConnectOption) (*belay.Client, error) {
	return belay.Connect(ctx, append([]belay.ConnectOption{belay.WithURL(s.URL())}, options...)...)
}

// Client returns a client of the server over its unix socket, which is closed with the test.
func (s *Server) Client(t testing.TB, options ...belay.ConnectOption) *belay.Client {
	t.Helper()
	client, err := s.Connect(context.Background(), options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Command runs the command line against this server and returns what it printed. The error has what it printed when it fails.
func (s *Server) Command(ctx context.Context, arguments ...string) (string, error) {
	command := exec.CommandContext(ctx, s.program, append(arguments, "--state-dir", s.StateDir())...)
	command.Env = s.Environment()
	output, err := command.Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		err = fmt.Errorf("belay %s: %w\n%s%s", strings.Join(arguments, " "), err, output, failed.Stderr)
	}
	return string(output), err
}

// AddPrincipal adds a principal with these roles (planner, viewer, approver, operator) and returns its token.
func (s *Server) AddPrincipal(ctx context.Context, name string, roles ...string) (string, error) {
	arguments := []string{"principals", "add", name, "-o", "json"}
	for _, role := range roles {
		arguments = append(arguments, "--role", role)
	}
	output, err := s.Command(ctx, arguments...)
	if err != nil {
		return "", err
	}
	var answer struct{ Token string }
	err = json.Unmarshal([]byte(output), &answer)
	return answer.Token, err
}

// WorkspaceOf returns the folder in which an execution works.
func (s *Server) WorkspaceOf(info *belay.ExecutionInfo) string {
	if info.Workspace != "" {
		return info.Workspace
	}
	return filepath.Join(s.StateDir(), "workspaces", strings.Split(info.Name, "/")[1], info.MadeFolder)
}
