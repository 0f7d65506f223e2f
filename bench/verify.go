package main

import (
	"context"
	"fmt"
)

// verify holds a row's answers against the native reference: on the calls that
// are measured, and on every step-th cell of the domain. Each is decided
// twice, because the gate answers the second time from what it compiled at the
// first. It returns the number of documents.
func verify(ctx context.Context, d decider, docs []*document, step int) (int, error) {
	count := 0
	one := func(doc *document) error {
		b, err := d.bind(ctx, doc)
		if err != nil {
			return fmt.Errorf("%s: %w", doc.name, err)
		}
		want := doc.call.Decide("")
		for range 2 {
			if err := b.run(); err != nil {
				return fmt.Errorf("%s: %w", doc.name, err)
			}
			got, err := b.answer()
			if err == nil {
				err = got.check(&want)
			}
			if err != nil {
				return fmt.Errorf("%s: %w: %s", doc.name, err, doc.text)
			}
		}
		count++
		return nil
	}
	for _, doc := range docs {
		if err := one(doc); err != nil {
			return count, err
		}
	}
	for i := 0; i < domainSize; i += step {
		doc, err := cell(i)
		if err == nil {
			err = one(doc)
		}
		if err != nil {
			return count, err
		}
	}
	return count, nil
}
