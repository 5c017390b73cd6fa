package belay_test

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"belay.dev/go"
	"belay.dev/go/belayv1"
)

func TestGeneratedStubsHaveTheClientsCredentials(t *testing.T) {
	server, _ := live(t)
	ctx := within(t)
	client := connect(t, belay.WithURL(server.HTTPURL()), belay.WithToken(got[string](t)(server.Token())))
	execution := start(t, client, noop(1))
	stub := belayv1.NewExecutorServiceClient(client.Raw())
	found := got[*belayv1.Execution](t)(stub.GetExecution(ctx, &belayv1.GetExecutionRequest{Name: execution.Name()}))
	equal(t, found.Name, execution.Name())
	watch := got[grpc.ServerStreamingClient[belayv1.WatchExecutionResponse]](t)(stub.WatchExecution(ctx, &belayv1.WatchExecutionRequest{Name: execution.Name()}))
	equal(t, got[*belayv1.WatchExecutionResponse](t)(watch.Recv()).Execution, execution.Name())
	got[*belayv1.ListApprovalsResponse](t)(belayv1.NewApprovalServiceClient(client.Raw()).ListApprovals(ctx, &belayv1.ListApprovalsRequest{Parent: "namespaces/default"}))
	must(t, client.Close())
	_, err := stub.GetExecution(ctx, &belayv1.GetExecutionRequest{Name: execution.Name()})
	equal(t, status.Code(err), codes.Canceled)
}

func TestStubsGoToTheGate(t *testing.T) {
	gate, _ := script(t, `{"GetApproval": [{"send": [{"name": "namespaces/default/approvals/a"}]}]}`)
	client := connect(t, belay.WithURL("unix:/nowhere"), belay.WithGate(gate.URL), belay.WithToken("t"))
	got[*belayv1.Approval](t)(belayv1.NewApprovalServiceClient(client.Raw()).GetApproval(within(t), &belayv1.GetApprovalRequest{Name: "a"}))
	equal(t, gate.Requests("GetApproval")[0].Metadata.Get("authorization"), []string{"Bearer t"})
}
