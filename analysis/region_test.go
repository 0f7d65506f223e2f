package analysis

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"reflect"
	"testing"
)

// dims makes a space whose dimensions have so many values each, named a0, a1, …
func dims(sizes ...int) *space {
	var list []dimension
	for i, size := range sizes {
		d := dimension{member: string(rune('a' + i))}
		for v := range size {
			d.values = append(d.values, fmt.Sprint(d.member, v))
		}
		list = append(list, d)
	}
	return newSpace(list)
}

// described are the conditions of each cube, in the order in which they come.
func described(cubes []*cube) [][]Condition {
	all := [][]Condition{}
	for _, c := range cubes {
		all = append(all, c.conditions())
	}
	return all
}

func TestCubesOfARegion(t *testing.T) {
	tests := map[string]struct {
		sizes []int
		in    func(at []int) bool
		want  [][]Condition
	}{
		"nothing":    {[]int{2, 3}, func([]int) bool { return false }, [][]Condition{}},
		"everything": {[]int{2, 3, 4}, func([]int) bool { return true }, [][]Condition{{}}},
		"no dimension at all": {nil, func([]int) bool { return true },
			[][]Condition{{}}},
		"one point": {[]int{2, 3}, func(at []int) bool { return at[0] == 1 && at[1] == 2 },
			[][]Condition{{{"a", []string{"a1"}}, {"b", []string{"b2"}}}}},
		"one value of one dimension": {[]int{2, 3, 2}, func(at []int) bool { return at[1] == 1 },
			[][]Condition{{{"b", []string{"b1"}}}}},
		"values that are not neighbours": {[]int{2, 3, 2}, func(at []int) bool { return at[1] != 1 },
			[][]Condition{{{"b", []string{"b0", "b2"}}}}},
		"a dimension of one value needs no condition": {[]int{1, 2}, func(at []int) bool { return at[1] == 0 },
			[][]Condition{{{"b", []string{"b0"}}}}},
		// An L has two cubes; the one that is larger comes first.
		"an L": {[]int{2, 3}, func(at []int) bool { return at[0] == 0 || at[1] == 0 },
			[][]Condition{{{"a", []string{"a0"}}}, {{"a", []string{"a1"}}, {"b", []string{"b0"}}}}},
		"an L that is longer the other way": {[]int{3, 2}, func(at []int) bool { return at[0] == 0 || at[1] == 0 },
			[][]Condition{{{"b", []string{"b0"}}}, {{"a", []string{"a0"}}, {"b", []string{"b1"}}}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRegion(dims(tt.sizes...))
			eachPoint(r.space, func(n int, at []int) {
				if tt.in(at) {
					r.set(n)
				}
			})
			if got := described(r.cubes()); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// eachPoint calls visit for each point in the order of their numbers.
func eachPoint(s *space, visit func(n int, at []int)) {
	for n := range s.size {
		at := make([]int, len(s.dims))
		for rest, i := n, len(s.dims)-1; i >= 0; i-- {
			at[i] = rest % len(s.dims[i].values)
			rest /= len(s.dims[i].values)
		}
		visit(n, at)
	}
}

func TestPointsAreNumbered(t *testing.T) {
	s := dims(2, 1, 3)
	if s.size != 6 {
		t.Errorf("size %d, want 6", s.size)
	}
	eachPoint(s, func(n int, at []int) {
		if got := s.number(at); got != n {
			t.Errorf("point %v has the number %d, want %d", at, got, n)
		}
	})
	if n := s.number([]int{1, 0, 2}); n != 5 {
		t.Errorf("the last point has the number %d, want 5", n)
	}
}

func TestRegionCounts(t *testing.T) {
	r := newRegion(dims(13, 11)) // 143 points are more than two words
	for _, n := range []int{0, 63, 64, 142, 64} {
		r.set(n)
	}
	if points(r) != 4 || !r.has(142) || r.has(141) {
		t.Errorf("%d points, 142 %v, 141 %v; want 4, true, false", points(r), r.has(142), r.has(141))
	}
	for from, want := range map[int]int{0: 0, 64: 64, 128: 142} {
		if got := r.first(from); got != want {
			t.Errorf("from %d on the first is %d, want %d", from, got, want)
		}
	}
	r.clear(142)
	r.clear(142)
	if points(r) != 3 || r.first(128) != -1 {
		t.Errorf("%d points, the first from 128 on is %d; want 3, -1", points(r), r.first(128))
	}
}

// Whatever the region: its cubes have no point in common, are all of it, and
// their sizes and conditions say so.
func TestCubesAreExactly(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 8))
	for round := range 400 {
		sizes := make([]int, random.IntN(6))
		for i := range sizes {
			sizes[i] = 1 + random.IntN(4)
		}
		s := dims(sizes...)
		r := newRegion(s)
		// Some regions are noise, as no policy makes them, some are made of cubes.
		fill, cubes := random.Float64(), random.IntN(5)
		eachPoint(s, func(n int, _ []int) {
			if cubes == 0 && random.Float64() < fill {
				r.set(n)
			}
		})
		for range cubes {
			fixed := make([]int, len(sizes))
			for i, size := range sizes {
				fixed[i] = random.IntN(2*size) - size // negative: any value
			}
			eachPoint(s, func(n int, at []int) {
				for i, v := range fixed {
					if v >= 0 && at[i] != v {
						return
					}
				}
				r.set(n)
			})
		}
		want := map[int]bool{}
		eachPoint(s, func(n int, _ []int) {
			if r.has(n) {
				want[n] = true
			}
		})
		if len(want) != points(r) {
			t.Fatalf("round %d: %d points are counted as %d", round, len(want), points(r))
		}
		seen := map[int]bool{}
		total := 0
		parts := r.cubes()
		for _, c := range parts {
			total += c.size()
			conditions := c.conditions()
			met := 0
			eachPoint(s, func(n int, at []int) {
				if fulfils(s, at, conditions) {
					met++
				}
			})
			visited := 0
			c.each(func(n int) bool {
				visited++
				if seen[n] || !want[n] {
					t.Fatalf("round %d: point %d is in two cubes, %v, or not in the region, %v", round, n, seen[n], !want[n])
				}
				seen[n] = true
				return true
			})
			if visited != c.size() || met != c.size() {
				t.Fatalf("round %d: a cube of size %d has %d points, and its conditions %v have %d", round, c.size(), visited, conditions, met)
			}
		}
		if total != len(want) || len(seen) != len(want) {
			t.Fatalf("round %d: the cubes have %d points, the region %d", round, total, len(want))
		}
		if len(want) == s.size && (len(parts) != 1 || len(parts[0].conditions()) != 0) {
			t.Fatalf("round %d: everything is %d cubes, the first with conditions %v", round, len(parts), parts[0].conditions())
		}
		if points(r) != 0 || r.first(0) != -1 {
			t.Fatalf("round %d: %d points are left in the region", round, points(r))
		}
	}
}

// fulfils reports whether a point has one of the values of each condition, as a
// reader would take them.
func fulfils(s *space, at []int, conditions []Condition) bool {
	for _, c := range conditions {
		for i, d := range s.dims {
			if d.member != c.Member {
				continue
			}
			found := false
			for _, v := range c.Values {
				found = found || v == d.values[at[i]]
			}
			if !found {
				return false
			}
		}
	}
	return true
}

func TestEachStopsWhenTold(t *testing.T) {
	r := newRegion(dims(2, 3))
	for n := range r.size {
		r.set(n)
	}
	c := r.cubes()[0]
	visited := 0
	if c.each(func(int) bool { visited++; return visited < 4 }) || visited != 4 {
		t.Errorf("visited %d points, want 4, and a report that it was stopped", visited)
	}
}

// points counts the points of a region.
func points(r *region) int {
	n := 0
	for _, word := range r.words {
		n += bits.OnesCount64(word)
	}
	return n
}
