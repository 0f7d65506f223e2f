package main

import (
	"context"
	"fmt"
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
	if auto, ok := open[autoName]; ok && s.run == nil {
		err = s.others(ctx, r, auto.(gate), docs, cold)
	}
	return r, differ, err
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
func (s *settings) others(ctx context.Context, r *report, auto gate, docs []*document, cold []*coldItem) error {
	for _, doc := range docs {
		items, err := jsonItems(ctx, auto.Engine, doc)
		if err != nil {
			return err
		}
		if err := s.section(r, doc.name+", JSON to JSON", items); err != nil {
			return err
		}
	}
	for _, doc := range docs {
		times, err := scaling(ctx, auto, doc, s.perItem/rounds)
		if err != nil {
			return err
		}
		r.Others = append(r.Others, figure{doc.name + ", warm, on two goroutines", times, "times the calls of one"})
	}
	ready := activation(ctx)
	if err := measure([]*item{ready}, s.perItem, func(int) {}); err != nil {
		return err
	}
	r.Others = append(r.Others, figure{"loading and compiling the policies", ready.cost.Nanoseconds / 1e6, "ms"})
	var first []float64
	for _, c := range cold {
		first = append(first, c.veryFirst...)
	}
	r.Others = append(r.Others, figure{"a new evaluator's very first answer",
		median(first, func(f float64) float64 { return f }) / 1e6, "ms"})
	return nil
}
