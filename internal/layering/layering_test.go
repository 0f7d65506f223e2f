// Package layering holds the test of who may import whom.
package layering

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/opa-gate/opa-gate/"

// allowed lists, for each package of the public face, the packages of this
// module that it may depend on, directly or not.
var allowed = map[string][]string{
	"capability": {},
	"skill":      {},
	"policies":   {},
	"provenance": {"skill", "internal/plain"},
	"optional":   {},
	"wire":       {"capability", "skill", "policies"},
	"fixtures":   {"capability", "skill", "policies", "wire"},
	"evaluator":  {"capability", "skill", "policies", "wire"},

	"bundle":   {"capability", "skill", "policies", "wire", "evaluator", "evaluator/internal/symbolic"},
	"analysis": {"capability", "skill", "policies", "optional", "wire", "evaluator", "evaluator/internal/symbolic"},

	"ledger":    {"capability", "skill"},
	"approvals": {"capability", "skill", "policies", "wire", "ledger"},

	"server": {"capability", "skill", "policies", "wire", "evaluator", "evaluator/internal/symbolic", "ledger", "approvals"},

	"agent":               {"capability", "skill", "policies", "wire", "evaluator", "evaluator/internal/symbolic", "ledger", "agent/steering"},
	"agent/hook":          {"capability", "skill", "policies", "wire", "evaluator", "evaluator/internal/symbolic", "ledger", "agent", "agent/hook/line", "agent/steering"},
	"agent/hook/line":     {},
	"agent/hook/settings": {},

	"agent/gateway": {"capability", "skill", "policies", "wire", "evaluator", "evaluator/internal/symbolic", "ledger", "agent", "agent/steering", "internal/plain"},

	"conformance": {"capability", "skill", "policies", "wire", "fixtures", "evaluator", "evaluator/internal/symbolic"},

	"evaluator/internal/symbolic": {},

	"agent/steering": {"capability"},
	"agent/replay":   {"capability", "skill", "policies", "wire", "evaluator", "evaluator/internal/symbolic", "agent/steering"},
}

// standardOnly packages import nothing beyond the standard library.
var standardOnly = []string{"capability", "skill", "policies", "optional", "agent/hook/line"}

// registryClient is what bundles are pushed and pulled with.
const registryClient = "oras.land/"

// protocol is what stands between agents and tools.
const protocol = "github.com/modelcontextprotocol/"

// heavy is what an embedder of the evaluator must not pay for.
var heavy = []string{
	"github.com/open-policy-agent/opa/v1/server",
	"github.com/open-policy-agent/opa/v1/runtime",
	"github.com/open-policy-agent/opa/v1/plugins",
	"github.com/open-policy-agent/opa/v1/download",
	registryClient,
	databases[0],
	databases[1],
	protocol,
}

// databases are what ledgers are kept in.
var databases = []string{"modernc.org/sqlite", "github.com/jackc/pgx"}

// pays lists what of the heavy each package is there for.
var pays = map[string][]string{
	"server":        heavy,
	"bundle":        {registryClient},
	"ledger":        databases,
	"approvals":     databases,
	"agent":         databases,
	"agent/hook":    databases,
	"agent/gateway": {databases[0], databases[1], protocol},
}

func TestImports(t *testing.T) {
	for pkg, may := range allowed {
		t.Run(pkg, func(t *testing.T) {
			out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", module+pkg).Output()
			if err != nil {
				t.Fatalf("go list: %v", err)
			}
			deps := strings.Fields(string(out))
			if !slices.Contains(deps, module+pkg) {
				t.Fatalf("go list does not list the package itself among %d", len(deps))
			}
			for _, dep := range deps {
				own, ours := strings.CutPrefix(dep, module)
				switch {
				case dep == module+pkg, strings.HasPrefix(own, pkg+"/internal/"):
				case ours && !slices.Contains(may, own):
					t.Errorf("%s must not depend on %s", pkg, own)
				case !ours && slices.Contains(standardOnly, pkg):
					t.Errorf("%s must not depend on %s: it imports the standard library only", pkg, dep)
				}
				for _, h := range heavy {
					if strings.HasPrefix(dep, h) && !slices.Contains(pays[pkg], h) {
						t.Errorf("%s must not depend on %s: an embedder would pay for it", pkg, dep)
					}
				}
			}
		})
	}
}
