package bundle

import (
	"net"
	"sync"
	"time"
)

// givenDeltas remembers which deltas were sent to whom. A client that keeps
// bundles on its disk, or wants signatures, takes no delta, and says so nowhere:
// it asks again with the tag that it has had. It must not be sent the same delta
// again, for ever. It is known by its connection, and if it makes one each time,
// by its host, which others can share.
type givenDeltas struct {
	mu    sync.Mutex
	count map[givenDelta]int
	since time.Time
}

type givenDelta struct{ client, bundle, from, to string }

const (
	maxGiven      = 50_000
	givenTime     = 10 * time.Minute
	givenByHost   = 64 // to clients at one host
	givenByClient = 1
)

func newGivenDeltas() *givenDeltas { return &givenDeltas{count: map[givenDelta]int{}} }

// first notes that a delta is about to be sent, and reports whether it should be.
func (g *givenDeltas) first(remote, bundle, from, to string) bool {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		host = remote
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if now := time.Now(); len(g.count) >= maxGiven || now.Sub(g.since) > givenTime {
		g.count, g.since = map[givenDelta]int{}, now
	}
	client, all := givenDelta{remote, bundle, from, to}, givenDelta{host, bundle, from, to}
	if g.count[client] >= givenByClient || g.count[all] >= givenByHost {
		return false
	}
	g.count[client]++
	g.count[all]++
	return true
}
