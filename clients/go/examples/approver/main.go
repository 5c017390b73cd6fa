// Command approver watches approvals, decides by a rule of its own, and leaves everything else to people.
//
//	go run ./examples/approver --allow 'build/*'
//
// The rule: a call that has run, and would change only files that match, is approved unless its risk is high. Forms, calls that have not run, and all others
// stay pending. Under `separate_duties` the approver has to be another principal than the one that started the execution.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path"

	"belay.dev/go"
)

// noteFor returns the note with which the rule approves; an empty one when the decision is a person's.
func noteFor(ctx context.Context, approval *belay.Approval, pattern string) (string, error) {
	if approval.Kind != "EFFECT" || approval.Risk == "HIGH" {
		return "", nil
	}
	count := 0
	for change, err := range approval.Changes(ctx) {
		if err != nil {
			return "", err
		}
		// Paths are compared as they are: a name that cannot be shown in full is a person's decision.
		if matches, err := path.Match(pattern, change.Path); err != nil || !matches || len(change.Flags) > 0 {
			return "", err
		}
		count++
	}
	if count == 0 {
		return "", nil
	}
	return fmt.Sprintf("%d change(s), all of them in %s", count, pattern), nil
}

// decide approves what the rule allows. It sends the digest of what was looked at: what has changed since is not approved.
func decide(ctx context.Context, approval *belay.Approval, pattern string) error {
	note, err := noteFor(ctx, approval, pattern)
	if err == nil && note != "" {
		_, err = approval.Approve(ctx, note)
	}
	switch {
	case errors.Is(err, belay.FailedPrecondition) || errors.Is(err, belay.PermissionDenied):
		fmt.Printf("%s: %v\n", approval.ID, err)
	case err != nil:
		return err
	case note == "":
		fmt.Printf("%s: %s: left to people\n", approval.ID, approval.Operation)
	default:
		fmt.Printf("%s: %s: %s\n", approval.ID, approval.Operation, note)
	}
	return nil
}

// run watches until it is stopped, or as many approvals were looked at as count says.
func run(ctx context.Context, client *belay.Client, pattern string, count int) error {
	seen := map[string]bool{}
	for update, err := range client.Approvals().Watch(ctx) {
		if err != nil {
			return err
		}
		switch update.Kind {
		case "reset":
			clear(seen)
		case "listed":
			fmt.Println("watching")
		}
		approval := update.Approval
		if approval == nil || !approval.IsPending() || seen[approval.Name] {
			continue
		}
		seen[approval.Name] = true
		if err := decide(ctx, approval, pattern); err != nil {
			return err
		}
		if count > 0 && len(seen) >= count {
			return nil
		}
	}
	return nil
}

func main() {
	allow := flag.String("allow", "", "the glob that all changed paths have to match")
	count := flag.Int("count", 0, "leave after so many approvals were looked at; 0 means never")
	flag.Parse()
	if *allow == "" {
		fmt.Fprintln(os.Stderr, "approver: --allow is missing: the glob that all changed paths have to match")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	client, err := belay.Connect(ctx)
	if err == nil {
		defer client.Close()
		err = run(ctx, client, *allow, *count)
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
