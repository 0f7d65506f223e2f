package replay

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// readTranscript reads a line of a transcript as Claude Code writes it: of the
// types user and assistant, whose message has content in blocks. Other types are
// bookkeeping, and hold no event.
//
// What a person typed is told from what the program says in a person's place: that
// is marked as meta, as a summary or as a side chain, stands beside results, or
// begins with a tag. A text of which this cannot be told is no prompt, and so was
// not typed.
func readTranscript(line []byte) ([]Event, error) {
	var doc struct {
		Type       string         `json:"type"`
		Session    string         `json:"sessionId"`
		UserType   string         `json:"userType"`
		Meta       bool           `json:"isMeta"`
		Summary    bool           `json:"isCompactSummary"`
		Invisible  bool           `json:"isVisibleInTranscriptOnly"`
		SideChain  bool           `json:"isSidechain"`
		ToolResult jsontext.Value `json:"toolUseResult"`
		Message    *struct {
			Content jsontext.Value `json:"content"`
		} `json:"message"`
	}
	if err := jsonv2.Unmarshal(line, &doc); err != nil {
		return nil, errors.New("its type is that of a transcript, and its members are not")
	}
	if doc.Type != "user" && doc.Type != "assistant" {
		return nil, nil
	}
	if doc.Message == nil {
		return nil, errors.New("it is a message without content")
	}
	typed := doc.Type == "user" && (doc.UserType == "" || doc.UserType == "external") &&
		!doc.Meta && !doc.Summary && !doc.Invisible && !doc.SideChain && doc.ToolResult == nil
	blocks, err := blocksOf(doc.Message.Content)
	if err != nil {
		return nil, err
	}
	var events []Event
	var texts []string
	for i := range blocks {
		b := &blocks[i]
		switch {
		case b.Type == "text":
			texts = append(texts, b.Text)
		case b.Type == "tool_result" && doc.Type == "user":
			typed = false
			events = append(events, Event{Kind: Result, Session: doc.Session, ID: b.ToolUseID})
		case b.Type == "tool_use" && doc.Type == "assistant":
			if b.Name == "" {
				return nil, errors.New("it is a call without a tool")
			}
			events = append(events, Event{Kind: Call, Session: doc.Session, ID: b.ID, Tool: b.Name, Arguments: json.RawMessage(bytes.Clone(b.Input))})
		}
	}
	for _, text := range texts {
		typed = typed && !strings.HasPrefix(strings.TrimSpace(text), "<")
	}
	if typed && len(texts) > 0 {
		events = append(events, Event{Kind: Prompt, Session: doc.Session, Text: strings.Join(texts, "\n")})
	}
	return events, nil
}

// A block is one part of a message.
type block struct {
	Type      string         `json:"type"`
	Text      string         `json:"text"`
	ID        string         `json:"id"`
	Name      string         `json:"name"`
	Input     jsontext.Value `json:"input"`
	ToolUseID string         `json:"tool_use_id"`
}

// blocksOf reads content, which is a text alone or a list of blocks.
func blocksOf(content jsontext.Value) ([]block, error) {
	switch content.Kind() {
	case jsontext.KindString:
		var text string
		err := jsonv2.Unmarshal(content, &text)
		return []block{{Type: "text", Text: text}}, err
	case jsontext.KindBeginArray:
		var blocks []block
		if err := jsonv2.Unmarshal(content, &blocks); err != nil {
			return nil, errors.New("it has blocks of another shape")
		}
		return blocks, nil
	}
	return nil, errors.New("it is a message whose content is neither a text nor blocks")
}
