// Package belay starts plans of AI agents on a Belay server, follows them event by event, decides approvals and answers forms.
//
//	client, err := belay.Connect(ctx)
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//	execution, err := client.Start(ctx, plan, belay.Key("first-try"))
//	if err != nil {
//		return err
//	}
//	for event, err := range execution.Events(ctx) {
//		if err != nil {
//			return err
//		}
//		fmt.Println(event.Sequence, event.Kind, event.StepID)
//	}
//
// A [Client], an [Execution] and an [Approval] can be used by any number of goroutines. An iterator starts its own stream or list in each range loop, and the
// loop's end closes it.
//
// Every error of this package is an *[Error] for errors.As, and its [Code] for errors.Is.
package belay

// Version is the version of this module, which is that of the contract's other clients.
const Version = "0.1.0"

// ContractRevision is the revision of the contract that the stubs were generated from. It is sent with each request as `belay-contract`.
const ContractRevision = 1
