package analysis

import (
	"math/bits"
	"slices"
)

// A dimension is one member of a document with the values that it can have, in
// words.
type dimension struct {
	member string
	values []string
}

// A space is the product of some dimensions. Its points are numbered, the last
// dimension fastest.
type space struct {
	dims  []dimension
	size  int
	free  func(n int) bool  // points that nothing is at: a cube may have them or not
	weigh func(c *cube) int // how much a cube has
}

func newSpace(dims []dimension) *space {
	s := &space{dims, 1, func(int) bool { return false }, (*cube).size}
	for _, d := range dims {
		s.size *= len(d.values)
	}
	return s
}

// number returns the number of a point.
func (s *space) number(at []int) int {
	n := 0
	for i, v := range at {
		n = n*len(s.dims[i].values) + v
	}
	return n
}

// A region is a set of points.
type region struct {
	*space
	words []uint64
}

func newRegion(s *space) *region { return &region{space: s, words: make([]uint64, (s.size+63)/64)} }

func (r *region) has(n int) bool { return r.words[n/64]&(1<<(n%64)) != 0 || r.free(n) }

func (r *region) set(n int) { r.words[n/64] |= 1 << (n % 64) }

func (r *region) clear(n int) { r.words[n/64] &^= 1 << (n % 64) }

// first returns the lowest point that is in the words from that of from on, or -1:
// from is a point below which there is none.
func (r *region) first(from int) int {
	for w := from / 64; w < len(r.words); w++ {
		if r.words[w] != 0 {
			return w*64 + bits.TrailingZeros64(r.words[w])
		}
	}
	return -1
}

// A cube is the product of some values of each dimension.
type cube struct {
	space  *space
	values [][]int // of each dimension, sorted
}

// size is how many points a cube has.
func (c *cube) size() int {
	n := 1
	for _, values := range c.values {
		n *= len(values)
	}
	return n
}

// each calls visit for each point until it returns false, and reports whether
// it never did.
func (c *cube) each(visit func(n int) bool) bool {
	var walk func(i, n int) bool
	walk = func(i, n int) bool {
		if i == len(c.values) {
			return visit(n)
		}
		for _, v := range c.values[i] {
			if !walk(i+1, n*len(c.space.dims[i].values)+v) {
				return false
			}
		}
		return true
	}
	return walk(0, 0)
}

// with returns c with one value alone in a dimension.
func (c *cube) with(dim, value int) *cube {
	values := slices.Clone(c.values)
	values[dim] = []int{value}
	return &cube{c.space, values}
}

// cubes takes the region apart into cubes that have no point in common but free ones,
// large ones first as far as a greedy choice finds them. The region is empty after
// that.
func (r *region) cubes() []*cube {
	var cubes []*cube
	for seed := r.first(0); seed >= 0; seed = r.first(seed) {
		best := r.grow(seed, false)
		if other := r.grow(seed, true); r.weigh(other) > r.weigh(best) {
			best = other
		}
		best.each(func(n int) bool {
			r.clear(n)
			return true
		})
		cubes = append(cubes, best)
	}
	return cubes
}

// grow returns a cube around a point that cannot be made larger within the
// region, widening the dimensions in their order or backwards.
func (r *region) grow(seed int, backwards bool) *cube {
	c := &cube{r.space, make([][]int, len(r.dims))}
	n := seed
	for i := len(r.dims) - 1; i >= 0; i-- {
		size := len(r.dims[i].values)
		c.values[i] = []int{n % size}
		n /= size
	}
	order := make([]int, len(r.dims))
	for i := range order {
		order[i] = i
	}
	if backwards {
		slices.Reverse(order)
	}
	for _, i := range order {
		for v := range r.dims[i].values {
			if !slices.Contains(c.values[i], v) && c.with(i, v).each(r.has) {
				c.values[i] = append(c.values[i], v)
			}
		}
		slices.Sort(c.values[i])
	}
	return c
}

// conditions are those dimensions in which a cube has not every value.
func (c *cube) conditions() []Condition {
	conditions := []Condition{}
	for i, d := range c.space.dims {
		if len(c.values[i]) == len(d.values) {
			continue
		}
		condition := Condition{Member: d.member}
		for _, v := range c.values[i] {
			condition.Values = append(condition.Values, d.values[v])
		}
		conditions = append(conditions, condition)
	}
	return conditions
}
