package gateway

import (
	"encoding/json"
	"fmt"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// maxTasks is how many tasks of one session are kept in mind.
const maxTasks = 10_000

// tasks remembers which call began a task: its result comes later, by
// tasks/result, and is the result of that call all the same.
type tasks struct {
	mu    sync.Mutex
	known map[string]task
}

type task struct {
	up   *upstream
	call Call
	note string // for the model, beside the result
}

// started notes the task that a call began.
func (t *tasks) started(c *toolCall, text jsontext.Value, note string) error {
	members, err := readObject(text)
	var id string
	if err == nil {
		err = unmarshalString(lookup(members, "taskId"), &id)
	}
	if err != nil || id == "" {
		return fmt.Errorf("server %q began a task that has no taskId", c.Server)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if old, ok := t.known[id]; ok && old.up != c.up {
		return fmt.Errorf("server %q began a task with the taskId of another server's", c.Server)
	}
	if len(t.known) >= maxTasks {
		return fmt.Errorf("the session has more than %d tasks", maxTasks)
	}
	if t.known == nil {
		t.known = make(map[string]task)
	}
	t.known[id] = task{c.up, c.Call, note}
	return nil
}

// of returns the task that params name, and whether it is known.
func (t *tasks) of(params json.RawMessage) (task, bool) {
	members, err := readObject(params)
	if err != nil {
		return task{}, false
	}
	var id string
	if unmarshalString(lookup(members, "taskId"), &id) != nil {
		return task{}, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	found, ok := t.known[id]
	return found, ok
}

// forwardTaskResult passes tasks/result and tasks/get on: some servers put the
// result into the state of the task. What a task of unknown origin returns taints as a
// tool of unknown origin does.
func (s *session) forwardTaskResult(up *upstream, r *jsonrpc.Request) {
	t, ok := s.tasks.of(r.Params)
	if !ok {
		t = task{up: up, call: Call{Session: s.id, Server: up.Name, Tool: "tasks/result"}}
	}
	s.forward(t.up, r, func(response *jsonrpc.Response) error {
		if err := s.returned(&t.call, response); err != nil {
			return err
		}
		if t.note == "" || response.Error != nil || r.Method != "tasks/result" {
			return s.markInputs(t.up, response)
		}
		members, err := readObject(response.Result, lenient...)
		if err != nil {
			return fmt.Errorf("server %q: the result of a task is no object, and was withheld", t.up.Name)
		}
		response.Result, err = withNote(members, t.note)
		return err
	})
}
