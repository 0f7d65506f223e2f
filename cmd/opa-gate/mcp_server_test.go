package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// mcpServer is the name under which the test's program is an MCP server.
const mcpServer = "test-mcp-server"

// lifetime ends a server that nobody ended.
const lifetime = 5 * time.Minute

// serveMCP speaks just enough MCP. What it executes it writes to the file that
// EXECUTED names before it does anything else: nothing else counts as a call that
// was made. It does not end when its input does.
func serveMCP() {
	time.AfterFunc(lifetime, func() { os.Exit(3) })
	if err := os.WriteFile(os.Getenv("PIDFILE"), fmt.Append(nil, os.Getpid()), 0o600); err != nil {
		os.Exit(3)
	}
	executed, err := os.OpenFile(os.Getenv("EXECUTED"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		os.Exit(3)
	}
	var writing sync.Mutex
	answer := func(id json.RawMessage, result string) {
		writing.Lock()
		defer writing.Unlock()
		_, _ = os.Stdout.WriteString(`{"jsonrpc":"2.0","id":` + string(id) + `,"result":` + result + "}\n")
	}
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			time.Sleep(lifetime)
		}
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct {
				Name      string
				Arguments struct{ Hold, Fill string }
			}
		}
		if json.Unmarshal([]byte(line), &m) != nil || m.ID == nil {
			continue
		}
		switch m.Method {
		case "initialize":
			answer(m.ID, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}`)
		case "tools/list":
			answer(m.ID, `{"tools":[{"name":"look","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true,"openWorldHint":false}},`+
				`{"name":"fetch","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true,"openWorldHint":true}},`+
				`{"name":"send","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":false,"openWorldHint":false}}]}`)
		case "tools/call":
			if _, err := executed.WriteString(m.Params.Name + "\n"); err != nil {
				os.Exit(3)
			}
			go func() {
				if file := m.Params.Arguments.Hold; file != "" {
					awaitFile(file)
				}
				if file := m.Params.Arguments.Fill; file != "" {
					fill(file)
				}
				answer(m.ID, `{"content":[{"type":"text","text":"content of `+m.Params.Name+`"}]}`)
			}()
		default:
			answer(m.ID, `{}`)
		}
	}
}

// awaitFile returns when there is a file.
func awaitFile(file string) {
	for {
		if _, err := os.Stat(file); err == nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// fill writes a file until no byte more has room.
func fill(file string) {
	f, err := os.Create(file)
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	for _, size := range []int{64 << 10, 4 << 10, 1} {
		for text := []byte(strings.Repeat("x", size)); err == nil; {
			_, err = f.Write(text)
		}
		err = nil
	}
}
