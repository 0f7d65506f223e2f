// Command genfacts writes the facts of the taxonomy into the policies, so that
// the tree stands alone on a stock OPA. Run it with go generate ./policies.
package main

import (
	"encoding/json"
	"log"
	"os"

	"github.com/opa-gate/opa-gate/evaluator"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: genfacts FILE")
	}
	text, err := json.Marshal(evaluator.Facts())
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(os.Args[1], append(text, '\n'), 0o644); err != nil {
		log.Fatal(err)
	}
}
