package gateway

import (
	"context"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/opa-gate/opa-gate/capability"
)

// serveSDK is a server of the SDK's, which speaks the newest protocol.
func serveSDK() {
	server := mcp.NewServer(&mcp.Implementation{Name: "sdk", Version: "1"}, nil)
	closed := false
	add := func(name string, annotations *mcp.ToolAnnotations) {
		server.AddTool(&mcp.Tool{Name: name, Annotations: annotations, InputSchema: map[string]any{"type": "object"}},
			func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done by " + name}}}, nil
			})
	}
	add("fetch", &mcp.ToolAnnotations{ReadOnlyHint: true})
	add("send", &mcp.ToolAnnotations{OpenWorldHint: &closed})
	if err := server.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		os.Exit(1)
	}
}

// The SDK's own client, in the newest protocol, where every request states the
// client and the gateway's question is a result: the person approves the first
// call, and rejects the second.
func TestNewestProtocol(t *testing.T) {
	b := newBench(t, "", fake("sdk", "sdk", connector))
	g, err := New(b.config, b.gate, &Options{ServerLog: b})
	if err != nil {
		t.Fatal(err)
	}
	clientIn, gatewayOut := io.Pipe()
	gatewayIn, clientOut := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- g.ServeStdio(context.Background(), sessionID, "tester", gatewayIn, gatewayOut) }()
	var questions []string
	client := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, &mcp.ClientOptions{
		ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			questions = append(questions, r.Params.Message)
			decision := approveOnce
			if len(questions) > 1 {
				decision = rejectIt
			}
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"decision": decision}}, nil
		},
	})
	cs, err := client.Connect(t.Context(), &mcp.IOTransport{Reader: clientIn, Writer: clientOut}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := cs.InitializeResult().ProtocolVersion; got != "2026-07-28" {
		t.Errorf("the protocol is %s", got)
	}
	if tools, err := cs.ListTools(t.Context(), nil); err != nil || len(tools.Tools) != 2 {
		t.Fatalf("%+v, %v", tools, err)
	}
	for _, step := range []struct{ tool, want string }{{"send", "done by send"}, {"fetch", "done by fetch"}, {"send", "done by send"}, {"send", "was not made"}} {
		result, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: step.tool, Arguments: map[string]any{}})
		if err != nil {
			t.Fatalf("%s: %v", step.tool, err)
		}
		if text := result.Content[0].(*mcp.TextContent).Text; !strings.Contains(text, step.want) {
			t.Errorf("%s: got %q, want %q", step.tool, text, step.want)
		}
	}
	if len(questions) != 2 || !strings.HasPrefix(questions[0], "opa-gate asks") {
		t.Errorf("asked %q", questions)
	}
	if b.taint() != capability.Tainted {
		t.Error("the conversation is clean")
	}
	if err := cs.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
