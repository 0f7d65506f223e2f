package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

const (
	barWidth      = 30
	progressEvery = 10 * time.Second // between two lines where there is no terminal
)

// A progress tells how far a survey is: on a terminal by a bar that is drawn
// again and again on one line, elsewhere by a line now and then.
type progress struct {
	w       io.Writer
	doing   string // in front of the bar
	line    string // with the percentage
	bar     bool
	percent int       // that the bar shows
	next    time.Time // when another line is due
	now     func() time.Time
}

// newProgress begins to tell it on w.
func newProgress(w io.Writer) *progress {
	return newProgressOf(w, "surveying", "surveyed %d %% of the kinds of call")
}

// newProgressOf is newProgress for another work: what is being done, and a line that says
// how much of it was.
func newProgressOf(w io.Writer, doing, line string) *progress {
	p := &progress{w: w, doing: doing, line: line, bar: isTerminal(w), percent: -1, now: time.Now}
	p.begin()
	return p
}

func (p *progress) begin() {
	p.next = p.now().Add(progressEvery)
	p.show(0, 1)
}

// show tells that done of total is done. Nothing is written that would say the
// same as before.
func (p *progress) show(done, total int) {
	percent := done * 100 / total
	if p.bar {
		if percent != p.percent {
			full := percent * barWidth / 100
			_, _ = fmt.Fprintf(p.w, "\r%s [%s%s] %3d %%", p.doing, strings.Repeat("#", full), strings.Repeat(".", barWidth-full), percent)
			p.percent = percent
		}
		return
	}
	if now := p.now(); !now.Before(p.next) {
		complain(p.w, fmt.Sprintf(p.line, percent))
		p.next = now.Add(progressEvery)
	}
}

// end removes the bar, so that what follows stands on a line of its own.
func (p *progress) end() {
	if p.bar {
		_, _ = io.WriteString(p.w, "\r\x1b[K")
	}
}
