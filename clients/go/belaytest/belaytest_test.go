package belaytest_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"belay.dev/go"
	"belay.dev/go/belaytest"
)

// skipped tells a test that skips or fails to its caller.
type skipped struct {
	testing.TB
	words string
}

func (s *skipped) Helper()            {}
func (s *skipped) Skip(values ...any) { s.end("skip", values) }
func (s *skipped) Fatal(values ...any) {
	s.end("fatal", values)
}

func (s *skipped) end(word string, values []any) {
	s.words = word + " " + values[0].(error).Error()
	panic(s)
}

func startWith(t *testing.T) (words string) {
	t.Helper()
	s := &skipped{TB: t}
	defer func() {
		if recover() != any(s) {
			t.Fatal("it neither skipped nor failed")
		}
		words = s.words
	}()
	belaytest.Start(s)
	return ""
}

func TestWithoutAProgram(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("PATH", t.TempDir())
	t.Setenv("BELAY_PROGRAM", "")
	t.Setenv("CI", "")
	for _, one := range []struct{ ci, program, words string }{
		{"", "", "skip no program `belay`"}, {"true", "", "fatal no program `belay`"}, {"", "/no/belay", "fatal BELAY_PROGRAM names /no/belay"},
	} {
		t.Setenv("CI", one.ci)
		t.Setenv("BELAY_PROGRAM", one.program)
		if words := startWith(t); !strings.HasPrefix(words, one.words) {
			t.Errorf("%+v: %s", one, words)
		}
	}
}

func TestTheProgramOfACheckoutIsFound(t *testing.T) {
	folder := t.TempDir()
	inner := filepath.Join(folder, "clients", "mine")
	program := filepath.Join(folder, "target", "debug", "belay")
	for _, one := range []string{inner, filepath.Dir(program), filepath.Join(folder, "proto", "belay", "v1")} {
		if err := os.MkdirAll(one, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(program, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir(inner)
	t.Setenv("BELAY_PROGRAM", "")
	if found, err := belaytest.FindProgram(); err != nil || found != program {
		t.Fatal(found, err)
	}
	// One that does not start says what it printed.
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho 'no such thing' >&2\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if words := startWith(t); !strings.Contains(words, "no such thing") {
		t.Fatal(words)
	}
}

func TestAServerEndsWithItsTest(t *testing.T) {
	if _, err := belaytest.FindProgram(); errors.Is(err, belaytest.ErrNoProgram) && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	var server *belaytest.Server
	var client *belay.Client
	t.Run("inner", func(t *testing.T) {
		server = belaytest.Start(t, belaytest.Config("{}\n"))
		client = server.Client(t)
		if _, err := belay.Collect(client.Executions(t.Context(), "")); err != nil {
			t.Fatal(err)
		}
		address := server.HTTPURL()
		for _, step := range []func() error{server.Stop, server.Start, server.Restart} {
			if err := step(); err != nil {
				t.Fatal(err)
			}
		}
		if server.HTTPURL() != address {
			t.Fatal("another port")
		}
		if err := server.Start(); err == nil {
			t.Fatal("it was started twice")
		}
		_, err := server.Command(t.Context(), "no-such-command")
		var failed *exec.ExitError
		if !errors.As(err, &failed) || !strings.Contains(err.Error(), "no-such-command") {
			t.Fatal(err)
		}
	})
	if err := server.Signal(os.Interrupt); err == nil {
		t.Fatal("it still runs")
	}
	if _, err := os.Stat(server.StateDir()); !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	if _, err := belay.Collect(client.Executions(context.Background(), "")); err == nil {
		t.Fatal("the client was not closed")
	}
}
