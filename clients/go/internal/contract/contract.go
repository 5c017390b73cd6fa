// Package contract runs the contract cases of tests/contract against the client. tests/contract/README.md has the format.
package contract

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"belay.dev/go"
	"belay.dev/go/belaytest"
	"belay.dev/go/internal/scripted"
)

// stepTimeout bounds each step, so that one that hangs is a failed case.
const stepTimeout = 150 * time.Second

// File is the file with the cases.
type File struct {
	Plans map[string]any
	Cases []Case
	// SHA256 is the digest of its bytes, in hexadecimal digits.
	SHA256 string `json:"-"`
}

// Case is a behaviour of a client.
type Case struct {
	Name, About, Server string
	Script              scripted.Script
	Steps               []map[string]any
}

// Read reads the file with the cases. Numbers keep their digits.
func Read(path string) (*File, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var file File
	if err := decoder.Decode(&file); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	file.SHA256 = fmt.Sprintf("%x", sha256.Sum256(text))
	return &file, nil
}

// Run runs the cases that are named, all without a name, prints a line for each, the number of cases and the digest of the file, and returns the names of those
// that failed.
func Run(ctx context.Context, out io.Writer, file *File, client Client, names ...string) ([]string, error) {
	shared, err := belaytest.New()
	if err != nil {
		return nil, err
	}
	defer shared.Close()
	if err := shared.Start(); err != nil {
		return nil, err
	}
	failed, count := []string{}, 0
	for _, one := range file.Cases {
		if len(names) > 0 && !slices.Contains(names, one.Name) {
			continue
		}
		count++
		if err := file.run(ctx, one, client, shared); err != nil {
			failed = append(failed, one.Name)
			fmt.Fprintf(out, "FAILED  %s\n        %v\n", one.Name, err)
		} else {
			fmt.Fprintf(out, "passed  %s\n", one.Name)
		}
	}
	fmt.Fprintf(out, "%s client: %d of %d cases: %d passed, %d failed\n", client.Name, count, len(file.Cases), count-len(failed), len(failed))
	fmt.Fprintf(out, "cases.json sha256 %s\n", file.SHA256)
	if count == 0 || len(names) > 0 && count != len(names) {
		return failed, fmt.Errorf("no case has one of the names %s", strings.Join(names, ", "))
	}
	return failed, nil
}

// run runs one case, from its first step to its last.
func (f *File) run(ctx context.Context, one Case, client Client, shared *belaytest.Server) (err error) {
	r := &runner{plans: f.Plans, client: client, namespace: "default", kept: map[string]any{}}
	defer r.close()
	switch one.Server {
	case "scripted":
		if r.script, err = scripted.Start(one.Script); err != nil {
			return err
		}
		defer r.script.Close()
	case "own":
		if r.server, err = belaytest.New(); err != nil {
			return err
		}
		defer r.server.Close()
		if err := r.server.Start(); err != nil {
			return err
		}
	case "live":
		r.server = shared
	default:
		return fmt.Errorf("the server %q is unknown to this runner", one.Server)
	}
	if r.server != nil {
		r.namespace = strings.ReplaceAll(one.Name, "_", "-")
		r.namespace = r.namespace[:min(len(r.namespace), 64)]
	}
	if r.first, err = r.connect(ctx, &arguments{values: map[string]any{}}); err != nil {
		return err
	}
	for number, step := range one.Steps {
		bounded, cancel := context.WithTimeout(ctx, stepTimeout)
		err := r.carryOut(bounded, step)
		cancel()
		if err != nil {
			return fmt.Errorf("step %d (%v): %w", number, step["do"], err)
		}
	}
	return nil
}

// runner is one case while it runs.
type runner struct {
	plans     map[string]any
	client    Client
	namespace string
	server    *belaytest.Server
	script    *scripted.Server
	kept      map[string]any
	first     *belay.Client
	closers   []func()
}

func (r *runner) close() {
	for _, closer := range r.closers {
		closer()
	}
}

// observed are the members of what an operation returned.
type observed map[string]any

// carryOut carries out a step and compares what came of it.
func (r *runner) carryOut(ctx context.Context, step map[string]any) error {
	args := &arguments{values: map[string]any{}, client: r.first}
	for key, value := range step {
		if slices.Contains([]string{"do", "as", "expect", "error"}, key) {
			continue
		}
		resolved, err := r.value(value)
		if err != nil {
			return err
		}
		args.values[key] = resolved
	}
	if client, ok := args.take("client").(*belay.Client); ok {
		args.client = client
	}
	name, _ := step["do"].(string)
	operation, ok := operations[name]
	if !ok {
		return fmt.Errorf("the operation is unknown to this runner")
	}
	found, handle, err := operation(r, ctx, args)
	if unknown := args.rest(); err == nil && len(unknown) > 0 {
		return fmt.Errorf("the arguments %v are unknown to this runner", unknown)
	}
	wanted, isRefused := step["error"].(map[string]any)
	switch {
	case isRefused && err == nil:
		return fmt.Errorf("no error, and %v was expected", wanted)
	case isRefused:
		return r.checkError(err, wanted)
	case err != nil:
		return err
	}
	if as, ok := step["as"].(string); ok {
		r.kept[as] = found
		if handle != nil {
			r.kept[as] = handle
		}
	}
	expected, _ := step["expect"].(map[string]any)
	for key, want := range expected {
		if err := r.compare(key, found[key], want); err != nil {
			return err
		}
	}
	return nil
}

// value returns a value of the file with what it names.
func (r *runner) value(value any) (any, error) {
	switch one := value.(type) {
	case []any:
		made := []any{}
		for _, entry := range one {
			resolved, err := r.value(entry)
			if err != nil {
				return nil, err
			}
			made = append(made, resolved)
		}
		return made, nil
	case map[string]any:
		if name, ok := one["$"].(string); ok && len(one) == 1 {
			return r.lookUp(name)
		}
		if name, ok := one["plan"].(string); ok && len(one) == 1 {
			return r.plans[name], nil
		}
		if text, ok := one["repeat"].(string); ok && len(one) == 2 {
			times, err := one["times"].(json.Number).Int64()
			return strings.Repeat(text, int(times)), err
		}
		made := map[string]any{}
		for key, entry := range one {
			resolved, err := r.value(entry)
			if err != nil {
				return nil, err
			}
			made[key] = resolved
		}
		return made, nil
	}
	return value, nil
}

func (r *runner) lookUp(path string) (any, error) {
	name, member, hasMember := strings.Cut(path, ".")
	found, ok := r.kept[name]
	if !ok {
		return nil, fmt.Errorf("nothing was kept as %s", name)
	}
	if !hasMember {
		return found, nil
	}
	switch one := found.(type) {
	case *belay.Execution:
		return map[string]any{"name": one.Name(), "id": one.ID()}[member], nil
	case *shown:
		return one.members[member], nil
	case observed:
		return one[member], nil
	}
	return nil, fmt.Errorf("%s has no members", name)
}

// compare compares a member with a value or a matcher.
func (r *runner) compare(where string, found, wanted any) error {
	found = normal(found)
	if matcher, ok := wanted.(map[string]any); ok && len(matcher) == 1 {
		for name, want := range matcher {
			match, known := matchers[name]
			if !known {
				break
			}
			want, err := r.value(want)
			if err != nil {
				return err
			}
			if want = normal(want); !match(found, want) {
				return fmt.Errorf("%s is %s, which does not fit %s: %s", where, short(found), name, short(want))
			}
			return nil
		}
	}
	want, err := r.value(wanted)
	if err != nil {
		return err
	}
	if !equal(found, normal(want)) {
		return fmt.Errorf("%s is %s instead of %s", where, short(found), short(want))
	}
	return nil
}

// checkError compares an error with the one that was expected.
func (r *runner) checkError(err error, wanted map[string]any) error {
	var base *belay.Error
	if !errors.As(err, &base) {
		return fmt.Errorf("an error that is not the client's: %w", err)
	}
	fields := []string{}
	for _, violation := range base.Fields {
		fields = append(fields, violation.Field)
	}
	found := map[string]any{
		"code": string(base.Code), "reason": base.Reason, "page": base.Page(), "retry_after": base.RetryAfter.Seconds(), "metadata": base.Metadata,
		"fields": fields, "usage": false, "failed": nil, "message": base.Message,
	}
	var usage *belay.UsageError
	found["usage"] = errors.As(err, &usage)
	var failed *belay.ExecutionFailedError
	if errors.As(err, &failed) {
		found["failed"] = failed.Info.State
	}
	for key, want := range wanted {
		if key == "message" {
			want = map[string]any{"contains": want}
		}
		if err := r.compare("the error's "+key, found[key], want); err != nil {
			return fmt.Errorf("%w: %v", err, base)
		}
	}
	return nil
}
