package belay_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"belay.dev/go"
	"belay.dev/go/belaytest"
)

var blocks = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")

// checkout makes a copy of this client in a folder with the contract beside it; a link would let commands write into this one.
func checkout(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	must(t, filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		into := filepath.Join(folder, "clients", "go", path)
		if err := os.MkdirAll(filepath.Dir(into), 0o700); err != nil {
			return err
		}
		return os.WriteFile(into, text, info.Mode())
	}))
	must(t, os.Symlink(filepath.Join(repository(t), "proto"), filepath.Join(folder, "proto")))
	return folder
}

// bash runs commands in a folder and returns what they print, and whether they succeed.
func bash(t *testing.T, folder, text string, environment []string) (string, error) {
	t.Helper()
	command := exec.CommandContext(within(t), "bash", "-ec", text)
	command.Dir, command.Env = folder, environment
	output, err := command.CombinedOutput()
	return string(output), err
}

func TestTheCommandsOfTheREADMEWork(t *testing.T) {
	server := belaytest.Start(t)
	folder := checkout(t)
	environment := append(server.Environment(), "BELAY_PROGRAM="+server.Program())
	printed := ""
	for _, block := range blocks.FindAllStringSubmatch(read(t, "README.md"), -1) {
		language, text := block[1], block[2]
		if language == "go" {
			name := regexp.MustCompile(`^// (\w+\.go)\n`).FindStringSubmatch(text)[1]
			write(t, text, folder, "hello", name)
			continue
		}
		equal(t, language, "sh")
		output, err := bash(t, folder, text, environment)
		if err != nil {
			t.Fatalf("%s%v\n%s", text, err, output)
		}
		printed += output
	}
	contains(t, printed, "1 execution_created", "Hello from a planner.", "dist/7.tar", `check COMPLETED {"by":"a planner"}`, "DELETED old.txt", "APPROVAL_DENIED", "ok  ",
		"derived files are current")
	equal(t, strings.Count(printed, "1 execution_created"), 2)
	started := got[[]*belay.ExecutionInfo](t)(belay.Collect(server.Client(t).Executions(within(t), "plan_id = hello")))
	equal(t, len(started), 1)
	unformatted, err := bash(t, filepath.Join(folder, "hello"), "gofmt -l .", os.Environ())
	must(t, err)
	equal(t, unformatted, "")
}

func TestWhatTheREADMENamesExists(t *testing.T) {
	text := read(t, "README.md")
	for _, link := range regexp.MustCompile(`\]\(([^)#]+)`).FindAllStringSubmatch(text, -1) {
		if _, err := os.Stat(link[1]); err != nil {
			t.Error(err)
		}
	}
	sources := ""
	for _, path := range got[[]string](t)(filepath.Glob("*.go")) {
		if !strings.HasSuffix(path, "_test.go") {
			sources += read(t, path)
		}
	}
	for _, name := range regexp.MustCompile(`belay\.([A-Z]\w+)`).FindAllStringSubmatch(text, -1) {
		if !regexp.MustCompile(`(?m)^(func|type|var|const|	)\s*` + name[1] + `\b`).MatchString(sources) {
			t.Error(name[1])
		}
	}
	sources += read(t, "belaytest/belaytest.go")
	for _, variable := range regexp.MustCompile(`BELAY_\w+`).FindAllString(text, -1) {
		contains(t, sources, variable)
	}
}

func TestDerivedFilesThatDifferAreNamed(t *testing.T) {
	folder := checkout(t)
	_, err := bash(t, folder, "clients/go/generate --check", os.Environ())
	must(t, err)
	write(t, "changed", folder, "clients/go/belayv1/watch.pb.go")
	write(t, "superfluous", folder, "clients/go/belayv1/more.pb.go")
	must(t, os.Remove(filepath.Join(folder, "clients/go/belayv1/tool.pb.go")))
	output, err := bash(t, folder, "clients/go/generate --check", os.Environ())
	if err == nil {
		t.Fatal(output)
	}
	contains(t, output, "not current: belayv1/watch.pb.go", "not current: belayv1/more.pb.go", "not current: belayv1/tool.pb.go")
	equal(t, strings.Count(output, "not current"), 3)
	_, err = bash(t, folder, "clients/go/generate && clients/go/generate --check", os.Environ())
	must(t, err)
}
