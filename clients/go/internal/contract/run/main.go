// Command run runs the contract cases against the client: `run --cases FILE [--client NAME] [CASE…]`. clients/go/contract calls it.
package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"belay.dev/go/internal/contract"
)

func main() {
	clients := contract.Clients()
	names := slices.Sorted(maps.Keys(clients))
	cases := flag.String("cases", "", "the file with the cases")
	name := flag.String("client", "go", "the client: "+strings.Join(names, ", ")+"; all but go have a planted fault")
	flag.Parse()
	client, ok := clients[*name]
	if !ok {
		fmt.Fprintf(os.Stderr, "contract: there is no client %q: use one of %s\n", *name, strings.Join(names, ", "))
		os.Exit(2)
	}
	file, err := contract.Read(*cases)
	if err != nil {
		fmt.Fprintln(os.Stderr, "contract:", err)
		os.Exit(2)
	}
	failed, err := contract.Run(context.Background(), os.Stdout, file, client, flag.Args()...)
	if err != nil {
		fmt.Fprintln(os.Stderr, "contract:", err)
		os.Exit(2)
	}
	if len(failed) > 0 {
		os.Exit(1)
	}
}
