package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/opa-gate/opa-gate/evaluator"
)

func (s *settings) wants(name string) bool { return s.run == nil || s.run.MatchString(name) }

// measure runs everything that is asked for. Differ tells that a row was left
// out because its answers are not the native ones.
func (s *settings) measure(ctx context.Context) (r *report, differ bool, err error) {
	r = newReport()
	docs, err := measuredDocuments()
	if err != nil {
		return nil, false, err
	}
	open := map[string]decider{}
	for _, row := range rows() {
		if !s.wants(row.name) {
			continue
		}
		d, err := row.open(ctx)
		if err != nil {
			return nil, false, fmt.Errorf("%s: %w", row.name, err)
		}
		count, err := verify(ctx, d, docs, s.step)
		if err != nil {
			progress("no figures for %s, because it differs: %v", row.name, err)
			differ = true
			continue
		}
		progress("%s agrees with native on %d calls", row.name, count)
		r.Verified[row.name], open[row.name] = count, d
	}

	auto, _ := open[autoName].(gate)
	warm, _ := auto.Engine.(*evaluator.Evaluator) // nil: its row is not asked for
	var asked uint64
	if warm != nil {
		asked = warm.Stats().Evaluations
	}
	var cold []*coldItem
	for _, doc := range docs {
		items, first, err := s.items(ctx, open, doc)
		if err != nil {
			return nil, false, err
		}
		if first != nil {
			cold = append(cold, first)
		}
		if err := s.section(r, doc.name, items); err != nil {
			return nil, false, err
		}
	}
	if warm != nil && s.run == nil {
		if err := s.others(ctx, r, warm, docs, cold); err != nil {
			return nil, false, err
		}
	}
	if warm != nil && warm.Stats().Evaluations != asked {
		return nil, false, errors.New("the warm row is not warm: OPA was asked while it was measured")
	}
	return r, differ, nil
}

// items are the rows of one call's table.
func (s *settings) items(ctx context.Context, open map[string]decider, doc *document) ([]*item, *coldItem, error) {
	var items []*item
	var cold *coldItem
	for _, row := range rows() {
		if d, ok := open[row.name]; ok {
			b, err := d.bind(ctx, doc)
			if err != nil {
				return nil, nil, err
			}
			items = append(items, &item{name: row.name, batch: batchOf(b.run)})
		}
		if row.name == autoName && s.wants(coldName) {
			var err error
			if cold, err = newColdItem(ctx, doc); err != nil {
				return nil, nil, err
			}
			items = append(items, &cold.item)
		}
	}
	return items, cold, nil
}

func (s *settings) section(r *report, name string, items []*item) error {
	err := measure(items, s.perItem, func(round int) {
		if round%5 == 0 {
			progress("%s: round %d of %d", name, round, rounds)
		}
	})
	if err == nil {
		r.add(name, items)
	}
	return err
}

// others measures what is no row of the tables.
func (s *settings) others(ctx context.Context, r *report, auto *evaluator.Evaluator, docs []*document, cold []*coldItem) error {
	for _, doc := range docs {
		items, err := jsonItems(ctx, auto, doc)
		if err != nil {
			return err
		}
		if err := s.section(r, doc.name+", JSON to JSON", items); err != nil {
			return err
		}
	}
	for _, doc := range docs {
		for _, one := range []struct {
			name string
			gate gate
		}{{autoName, gate{auto}}, {nativeName, gate{evaluator.Native{}}}} { // native shows what the machine gave
			times, err := scaling(ctx, one.gate, doc, s.perItem/rounds/2)
			if err != nil {
				return err
			}
			r.Others = append(r.Others, figure{
				doc.name + ", " + one.name + ", on two goroutines", times, "times the calls of one (best rounds)"})
		}
	}
	ready := activation(ctx)
	if err := measure([]*item{ready}, s.perItem, func(int) {}); err != nil {
		return err
	}
	var first, second []float64
	for _, c := range cold {
		first, second = append(first, c.first...), append(second, c.second...)
	}
	same := func(f float64) float64 { return f }
	stats := auto.Stats()
	r.Others = append(r.Others,
		figure{"loading and compiling the policies", ready.cost.Nanoseconds / 1e6, "ms"},
		figure{"a new evaluator's first answer", median(first, same) / 1e6, "ms"},
		figure{"its second, before which it makes its plan", median(second, same) / 1e6, "ms"},
		figure{fmt.Sprintf("memory of the table with %d cells", stats.Compiled), float64(stats.Bytes) / 1024, "KiB"},
	)
	return nil
}
