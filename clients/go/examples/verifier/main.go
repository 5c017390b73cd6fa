// Command verifier watches all executions that ask for it, checks their results and artifacts, and signals what it has found or denies a call.
//
//	go run ./examples/verifier --below out/
//
// It looks after executions with the label `verify`. One that waits for the signal `verified` gets it, with `accepted` and `problems`: each file that its calls
// have committed lies below the folder, no output is empty, and the digest of each small output is that of its bytes. A call that would change a file elsewhere
// is denied; what stays inside is left to people.
package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"

	"belay.dev/go"
)

// verifier is what the program knows.
type verifier struct {
	client *belay.Client
	below  string
	// verified has the waits that were answered, by execution and step.
	verified map[string]bool
}

// isInside says whether a path is the folder or lies below it.
func (v *verifier) isInside(path string) bool { return strings.HasPrefix(path+"/", v.below) }

// problemsOf returns what is wrong with the results and artifacts of an execution.
func (v *verifier) problemsOf(ctx context.Context, execution *belay.Execution) ([]string, error) {
	problems := []string{}
	for artifact, err := range execution.Artifacts(ctx) {
		if err != nil {
			return nil, err
		}
		switch {
		case artifact.Kind == "FILE" && !v.isInside(artifact.Path):
			problems = append(problems, fmt.Sprintf("%s was %s outside of %s", artifact.Path, strings.ToLower(artifact.Change), v.below))
		case artifact.Kind == "FILE":
		case artifact.SizeBytes <= int64(len(`""`)):
			problems = append(problems, fmt.Sprintf("the output of %s is empty", artifact.StepID))
		case strings.HasPrefix(artifact.Digest, "sha256:"):
			content, err := execution.ReadArtifact(ctx, artifact.Name)
			if err != nil {
				return nil, err
			}
			if artifact.Digest != fmt.Sprintf("sha256:%x", sha256.Sum256(content)) {
				problems = append(problems, fmt.Sprintf("the output of %s is not what was recorded", artifact.StepID))
			}
		}
	}
	return problems, nil
}

// verify signals and denies what an execution waits for, once for each wait.
func (v *verifier) verify(ctx context.Context, execution *belay.Execution) error {
	for step, err := range execution.Steps(ctx) {
		if err != nil {
			return err
		}
		wait := execution.Name() + " " + step.ID
		if step.State != "WAITING" || step.Raw.GetWait().GetSignal() != "verified" || v.verified[wait] {
			continue
		}
		problems, err := v.problemsOf(ctx, execution)
		if err != nil {
			return err
		}
		// The key makes the signal one signal, also of a verifier that is started again.
		key := belay.Key("verified-" + execution.ID() + "-" + step.ID)
		verdict := map[string]any{"accepted": len(problems) == 0, "problems": problems}
		if _, err := execution.Signal(ctx, "verified", verdict, key); err != nil {
			return err
		}
		v.verified[wait] = true
		if len(problems) == 0 {
			problems = []string{"accepted"}
		}
		fmt.Printf("%s: %s\n", execution.ID(), strings.Join(problems, "; "))
	}
	approvals, err := execution.Approvals(ctx)
	if err != nil {
		return err
	}
	for _, approval := range approvals {
		if err := v.denyOutside(ctx, execution, approval); err != nil {
			return err
		}
	}
	return nil
}

// denyOutside denies a call that would change a file outside of the folder.
func (v *verifier) denyOutside(ctx context.Context, execution *belay.Execution, approval *belay.Approval) error {
	if approval.Kind != "EFFECT" {
		return nil
	}
	for change, err := range approval.Changes(ctx) {
		if err != nil {
			return err
		}
		if !v.isInside(change.Path) {
			reason := fmt.Sprintf("changes %s, and only files below %s may change", change.Path, v.below)
			if _, err := approval.Deny(ctx, reason); err != nil {
				return err
			}
			fmt.Printf("%s: denied %s\n", execution.ID(), approval.Operation)
			return nil
		}
	}
	return nil
}

// run follows all executions until it is stopped, or as many have ended as count says.
func (v *verifier) run(ctx context.Context, count int) error {
	ended := map[string]bool{}
	for update, err := range v.client.WatchExecutions(ctx, "labels.verify:*") {
		if err != nil {
			return err
		}
		if update.Kind == "listed" {
			fmt.Println("watching")
		}
		if update.Execution == nil {
			continue
		}
		execution, err := v.client.Execution(update.Execution.Name)
		if err != nil {
			return err
		}
		if update.Execution.Ended() {
			if !ended[execution.Name()] {
				fmt.Printf("%s: %s\n", execution.ID(), update.Execution.State)
			}
			ended[execution.Name()] = true
		} else if err := v.verify(ctx, execution); errors.Is(err, belay.FailedPrecondition) || errors.Is(err, belay.NotFound) {
			// Somebody else was faster, or it has ended meanwhile: the next update shows it.
			fmt.Printf("%s: %v\n", execution.ID(), err)
		} else if err != nil {
			return err
		}
		if count > 0 && len(ended) >= count {
			return nil
		}
	}
	return nil
}

func main() {
	below := flag.String("below", "out/", "the folder in which files may change")
	count := flag.Int("count", 0, "leave after so many executions have ended; 0 means never")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	client, err := belay.Connect(ctx)
	if err == nil {
		defer client.Close()
		err = (&verifier{client, *below, map[string]bool{}}).run(ctx, *count)
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
