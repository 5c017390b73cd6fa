package main

import (
	"bytes"
	"strings"
	"testing"
)

const good = `{"Action":"pass","Package":"belay.dev/go","Test":"TestA/one"}
{"Action":"pass","Package":"belay.dev/go","Test":"TestA/two"}
{"Action":"pass","Package":"belay.dev/go","Test":"TestA"}
{"Action":"output","Package":"belay.dev/go","Test":"TestB","Output":"    b_test.go:3: no openssl\n"}
{"Action":"output","Package":"belay.dev/go","Test":"TestB","Output":"--- SKIP: TestB\n"}
{"Action":"skip","Package":"belay.dev/go","Test":"TestB"}
{"Action":"pass","Package":"belay.dev/go"}
`

const bad = good + `{"Action":"output","Package":"belay.dev/go/x","Test":"TestC","Output":"wrong\n"}
{"Action":"fail","Package":"belay.dev/go/x","Test":"TestC"}
{"Action":"fail","Package":"belay.dev/go/x"}
{"Action":"build-output","ImportPath":"belay.dev/go/y","Output":"does not build\n"}
{"Action":"fail","Package":"belay.dev/go/y"}
`

func TestTotals(t *testing.T) {
	for _, one := range []struct {
		name, in string
		before   int
		good     bool
		has      []string
	}{
		{"good", good, 0, true, []string{"test go.TestB ... ignored, b_test.go:3: no openssl\n", "test result: ok. 2 passed; 0 failed; 1 ignored;"}},
		{"bad", bad, 0, false, []string{"---- go/x.TestC stdout ----\nwrong\n", "does not build", "    go/x.TestC\n", "test result: FAILED. 2 passed; 2 failed; 1 ignored;"}},
		{"failed before", good, 1, false, []string{"test result: FAILED. 2 passed; 1 failed; 1 ignored;"}},
		{"nothing", "", 0, false, []string{"test result: FAILED. 0 passed; 0 failed;"}},
		{"no JSON", "go: command not found", 0, false, []string{"cannot be read", "0 passed; 1 failed;"}},
	} {
		t.Run(one.name, func(t *testing.T) {
			var out bytes.Buffer
			if isGood := show(strings.NewReader(one.in), &out, one.before); isGood != one.good {
				t.Errorf("good is %v", isGood)
			}
			for _, part := range one.has {
				if !strings.Contains(out.String(), part) {
					t.Errorf("%q is not in\n%s", part, out.String())
				}
			}
		})
	}
}
