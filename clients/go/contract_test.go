package belay_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"belay.dev/go/internal/contract"
)

func cases(t *testing.T) *contract.File {
	t.Helper()
	return got[*contract.File](t)(contract.Read(filepath.Join(repository(t), "tests/contract/cases.json")))
}

func TestAllContractCasesHold(t *testing.T) {
	live(t)
	file := cases(t)
	var out bytes.Buffer
	failed := got[[]string](t)(contract.Run(t.Context(), &out, file, contract.Clients()["go"]))
	for _, one := range file.Cases {
		t.Run(one.Name, func(t *testing.T) {
			if slices.Contains(failed, one.Name) {
				t.Error(out.String())
			}
		})
	}
	count := len(file.Cases)
	contains(t, out.String(), fmt.Sprintf("go client: %d of %d cases: %d passed, 0 failed\ncases.json sha256 %s\n", count, count, count, file.SHA256))
}

func TestAWrongClientIsFound(t *testing.T) {
	live(t)
	for client, wrong := range map[string][]string{
		"drops-an-event":     {"start_and_follow", "watch_through_a_restart", "a_stream_that_breaks_anywhere"},
		"repeats-an-event":   {"start_and_follow", "watch_through_a_restart", "what_comes_twice"},
		"old-digest":         {"each_approval_has_its_digest"},
		"retries-everything": {"what_is_not_safe_is_sent_once"},
		"loses-digits":       {"numbers_of_64_bits"},
	} {
		t.Run(client, func(t *testing.T) {
			var out bytes.Buffer
			failed, err := contract.Run(t.Context(), &out, cases(t), contract.Clients()[client], wrong...)
			must(t, err)
			equal(t, failed, wrong)
		})
	}
}

func TestTheCasesAreWellFormed(t *testing.T) {
	documented := read(t, repository(t), "tests/contract/README.md")
	seen := map[string]bool{}
	for _, one := range cases(t).Cases {
		if seen[one.Name] || !regexp.MustCompile(`^[a-z0-9_]{1,64}$`).MatchString(one.Name) || len(one.Steps) == 0 {
			t.Errorf("the case %q", one.Name)
		}
		seen[one.Name] = true
		for _, step := range one.Steps {
			contains(t, documented, fmt.Sprintf("`%v`", step["do"]))
		}
	}
	_, err := contract.Run(t.Context(), &bytes.Buffer{}, cases(t), contract.Clients()["go"], "no_such_case")
	if err == nil {
		t.Error("a case that is not there was run")
	}
}
