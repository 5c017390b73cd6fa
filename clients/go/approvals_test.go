package belay_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"belay.dev/go"
	"belay.dev/go/belaytest"
)

func TestAnApprovalIsLookedAtAndApproved(t *testing.T) {
	server, client := live(t)
	ctx := within(t)
	execution := start(t, client, deletion)
	approval := pending(t, client, execution)
	equal(t, []string{approval.Kind, approval.State, approval.Tool, approval.StepID, approval.Risk}, []string{"EFFECT", "PENDING", "delete_file", "remove", "MEDIUM"})
	if approval.Deleted != 1 || approval.RequestReason != "Remove the old file" || approval.Execution != execution.Name() {
		t.Fatalf("%+v", approval)
	}
	changes := got[[]*belay.PathChange](t)(belay.Collect(approval.Changes(ctx, belay.PageSize(1))))
	equal(t, []string{changes[0].Path, changes[0].Kind}, []string{"old.txt", "DELETED"})
	contains(t, got[string](t)(approval.Diff(ctx, changes[0].Index)), "-one")
	shown := got[*belay.Approval](t)(approval.Show(ctx))
	contains(t, shown.Headline, "old.txt")
	equal(t, []any{shown.Digest, shown.Form == nil, approval.Headline}, []any{approval.Digest, true, ""})
	equal(t, got[*belay.Approval](t)(client.Approvals().Get(ctx, approval.ID)).Headline, shown.Headline)
	decided := got[*belay.Approval](t)(shown.Approve(ctx, "as agreed"))
	equal(t, []any{decided.DecidedBy, decided.DecideReason, decided.IsPending()}, []any{"person:owner", "as agreed", false})
	info := got[*belay.ExecutionInfo](t)(execution.Wait(ctx))
	if _, err := os.Stat(filepath.Join(server.WorkspaceOf(info), "old.txt")); !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	_, err := approval.Deny(ctx, "too late")
	refused(t, err, "ALREADY_DECIDED")
}

func TestADenialReachesThePlanner(t *testing.T) {
	server, client := live(t)
	ctx := within(t)
	execution := start(t, client, deletion)
	approval := pending(t, client, execution)
	_, err := approval.Deny(ctx, "")
	equal(t, refused(t, err, "INVALID_USAGE").Fields[0].Field, "reason")
	got[*belay.Approval](t)(approval.Deny(ctx, "we still need it"))
	var failed *belay.ExecutionFailedError
	if err := execution.Result(ctx, nil); !errors.As(err, &failed) || failed.Failure.Class != "APPROVAL_DENIED" {
		t.Fatal(err)
	}
	contains(t, failed.Failure.Message, "we still need it")
	equal(t, read(t, server.WorkspaceOf(failed.Info), "old.txt"), "one\ntwo\n")
}

func TestADecisionIsAboutWhatWasShown(t *testing.T) {
	_, client := live(t)
	ctx := within(t)
	execution := start(t, client, deletion)
	approval := pending(t, client, execution)
	other := *approval
	other.Digest = "sha256:" + strings.Repeat("0", 64)
	for _, decide := range []func() (*belay.Approval, error){
		func() (*belay.Approval, error) { return other.Approve(ctx, "") },
		func() (*belay.Approval, error) { return other.Deny(ctx, "no") },
		func() (*belay.Approval, error) { return other.Skip(ctx, "") },
	} {
		_, err := decide()
		refused(t, err, "DIGEST_MISMATCH")
	}
	equal(t, len(got[[]*belay.Approval](t)(execution.Approvals(ctx))), 1)
	once := belay.Key("decide-" + approval.ID)
	one := got[*belay.Approval](t)(approval.Approve(ctx, "yes", once))
	equal(t, got[*belay.Approval](t)(approval.Approve(ctx, "yes", once)).Name, one.Name)
	_, err := approval.Approve(ctx, "another note", once)
	if !errors.Is(err, belay.AlreadyExists) {
		t.Fatal(err)
	}
}

func TestAFormIsAnswered(t *testing.T) {
	_, client := live(t)
	ctx := within(t)
	execution := start(t, client, form)
	asked := pending(t, client, execution)
	equal(t, []any{asked.Kind, asked.Operation, asked.Form == nil}, []any{"FORM", "Which version?", true})
	shown := got[*belay.Approval](t)(asked.Show(ctx))
	var schema struct{ Required []string }
	must(t, shown.Form.Schema.Decode(&schema))
	equal(t, []any{shown.Form.Description, schema.Required}, []any{"The next one.", []string{"version"}})
	_, err := asked.Answer(ctx, object{"version": "one"})
	contains(t, refused(t, err, "ANSWER_INVALID").Fields[0].Field, "version")
	answered := got[*belay.Approval](t)(asked.Answer(ctx, object{"version": int64(1<<53 + 1)}))
	equal(t, answered.State, "ANSWERED")
	var result struct{ Version int64 }
	must(t, execution.Result(ctx, &result))
	equal(t, result.Version, int64(1<<53+1))
}

func TestAClientBesideTheCommandLine(t *testing.T) {
	server, client := live(t)
	ctx := within(t)
	execution := start(t, client, deletion)
	asked := pending(t, client, execution)
	var listed struct {
		Approvals []struct{ Name, SubjectDigest string }
	}
	must(t, json.Unmarshal([]byte(got[string](t)(server.Command(ctx, "approvals", "list", "-o", "json"))), &listed))
	found := false
	for _, one := range listed.Approvals {
		found = found || one.Name == asked.Name && one.SubjectDigest == asked.Digest
	}
	equal(t, found, true)
	got[string](t)(server.Command(ctx, "approve", asked.ID, "--yes"))
	_, err := asked.Deny(ctx, "not what the person said")
	refused(t, err, "ALREADY_DECIDED")
	equal(t, got[*belay.ExecutionInfo](t)(execution.Wait(ctx)).Succeeded(), true)
}

func TestApprovalsAreWatchedOverARestart(t *testing.T) {
	server := belaytest.Start(t)
	client := server.Client(t)
	ctx := within(t)
	execution := start(t, client, deletion)
	states, cursor := []string{}, ""
	for update, err := range client.Approvals().Watch(ctx, belay.OfExecution(execution.ID())) {
		must(t, err)
		cursor = update.Cursor
		if update.Approval == nil {
			continue
		}
		states = append(states, update.Approval.State)
		if len(states) == 1 {
			must(t, server.Restart())
			got[*belay.Approval](t)(update.Approval.Approve(ctx, ""))
		}
		if update.Approval.State == "CONSUMED" {
			break
		}
	}
	equal(t, []string{states[0], states[len(states)-1]}, []string{"PENDING", "CONSUMED"})
	for update, err := range client.Approvals().Watch(ctx, belay.OfExecution(execution.ID()), belay.After(cursor)) {
		must(t, err)
		equal(t, update.Kind, "listed")
		break
	}
	all := got[[]*belay.Approval](t)(belay.Collect(client.Approvals().List(ctx, belay.OfExecution(execution.ID()), belay.InStates())))
	equal(t, []any{len(all), all[0].State}, []any{1, "CONSUMED"})
	equal(t, len(got[[]*belay.Approval](t)(belay.Collect(client.Approvals().List(ctx)))), 0)
	_, err := belay.Collect(client.Approvals().List(ctx, belay.InStates("OPEN")))
	contains(t, err.Error(), "PENDING")
}
