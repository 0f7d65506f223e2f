package evaluator

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"
)

func TestSurveyTime(t *testing.T) {
	e := embedded(t)
	t0 := time.Now()
	s, err := e.Survey(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	m := map[*class]bool{}
	for _, c := range s.cells {
		m[c] = true
	}
	t.Log(time.Since(t0), len(s.Incomplete), len(m))
	_ = rand.IntN
}
