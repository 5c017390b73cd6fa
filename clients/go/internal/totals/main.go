// Command totals reads what `go test -json` prints and shows it in the words of Rust's test programs, beside which clients/go/check runs: each test that was
// skipped, the output of each that failed, and the totals. Its argument is the number of checks that failed before. It ends with 1 when something failed, and
// when no test passed. A test with subtests counts as those.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
)

// event is a line of `go test -json`.
type event struct{ Action, Package, ImportPath, Test, Output string }

func main() {
	before := 0
	if len(os.Args) > 1 {
		number, err := strconv.Atoi(os.Args[1])
		if err != nil {
			fmt.Fprintln(os.Stderr, "totals:", err)
			os.Exit(2)
		}
		before = number
	}
	if !show(os.Stdin, os.Stdout, before) {
		os.Exit(1)
	}
}

// show prints everything and returns whether all is well.
func show(in io.Reader, out io.Writer, failed int) bool {
	passed, ignored := 0, 0
	printed, parents := map[string][]string{}, map[string]bool{}
	var names, ends []string
	decoder := json.NewDecoder(in)
	for {
		var one event
		if err := decoder.Decode(&one); err != nil {
			if err != io.EOF {
				// What is no JSON is a tool that failed before any test.
				fmt.Fprintln(out, "the output of go test cannot be read:", err)
				failed++
			}
			break
		}
		name := strings.TrimPrefix(orElse(one.Package, one.ImportPath)+"."+one.Test, "belay.dev/")
		switch one.Action {
		case "output", "build-output":
			printed[name] = append(printed[name], one.Output)
		case "pass", "fail", "skip":
			if parent := name[:max(strings.LastIndexByte(name, '/'), 0)]; one.Test != "" && strings.Contains(one.Test, "/") {
				parents[parent] = true
			}
			names, ends = append(names, name), append(ends, one.Action)
		}
	}
	var wrong []string
	for index, name := range names {
		isPackage := strings.HasSuffix(name, ".")
		switch {
		case ends[index] == "fail" && isPackage && slices.ContainsFunc(wrong, func(one string) bool { return strings.HasPrefix(one, name) }):
			// Its failure is that of its tests.
		case ends[index] == "fail" && parents[name]:
		case ends[index] == "fail":
			wrong = append(wrong, name)
			fmt.Fprintf(out, "---- %s stdout ----\n%s\n", name, strings.Join(printed[name], ""))
		case isPackage || parents[name]:
		case ends[index] == "skip":
			ignored++
			fmt.Fprintf(out, "test %s ... ignored, %s\n", name, why(printed[name]))
		default:
			passed++
		}
	}
	if len(wrong) > 0 {
		fmt.Fprintf(out, "failures:\n    %s\n\n", strings.Join(wrong, "\n    "))
	}
	failed += len(wrong)
	word, isGood := "ok", failed == 0 && passed > 0
	if !isGood {
		word = "FAILED"
	}
	fmt.Fprintf(out, "test result: %s. %d passed; %d failed; %d ignored; 0 measured; 0 filtered out\n", word, passed, failed, ignored)
	fmt.Fprintf(out, "go client: %d passed, %d failed\n", passed, failed)
	return isGood
}

// why returns the reason of a skipped test: the last line that it printed itself.
func why(lines []string) string {
	for _, line := range slices.Backward(lines) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "---") && !strings.HasPrefix(line, "===") {
			return line
		}
	}
	return "no reason given"
}

func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}
