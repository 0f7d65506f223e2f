package evaluator

import (
	"context"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/opa-gate/opa-gate/policies"
)

func digestOf(t *testing.T, opts *Options) string {
	t.Helper()
	e, err := New(context.Background(), opts)
	if err != nil {
		t.Fatal(err)
	}
	digest, err := e.Digest()
	if err != nil || !strings.HasPrefix(digest, "sha256:") || len(digest) != len("sha256:")+64 {
		t.Fatalf("digest %q, %v", digest, err)
	}
	return digest
}

func TestDigest(t *testing.T) {
	builtin := digestOf(t, nil)
	tree := func(change func(fstest.MapFS)) *Options {
		files := fstest.MapFS{}
		err := fs.WalkDir(policies.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
			if err == nil && !entry.IsDir() {
				var text []byte
				text, err = fs.ReadFile(policies.FS(), name)
				files[name] = &fstest.MapFile{Data: text}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		change(files)
		return &Options{FS: files}
	}
	appendTo := func(name, text string) func(fstest.MapFS) {
		return func(files fstest.MapFS) {
			if files[name] == nil {
				t.Fatalf("there is no %s", name)
			}
			files[name] = &fstest.MapFile{Data: []byte(string(files[name].Data) + text)}
		}
	}
	for name, tt := range map[string]struct {
		opts *Options
		same bool
	}{
		"the embedded ones as a tree": {tree(func(fstest.MapFS) {}), true},
		"without the facts' file":     {tree(func(f fstest.MapFS) { delete(f, "gate/facts/data.json") }), true},
		"a comment on calls":          {tree(appendTo("gate/call/call.rego", "\n# A remark.\n")), false},
		"a rule on taint":             {tree(appendTo("gate/taint/taint.rego", "\nmore := 1\n")), false},
		"a rule on skills":            {tree(appendTo("gate/trust/trust.rego", "\nmore := 1\n")), true},
		"data that nobody refers to":  {tree(func(f fstest.MapFS) { f["other/data.json"] = &fstest.MapFile{Data: []byte(`{"x": 1}`)} }), true},
		"the system's name":           {&Options{System: "Acme"}, false},
		"another file name of a module": {tree(func(f fstest.MapFS) {
			f["gate/taint/renamed.rego"] = f["gate/taint/taint.rego"]
			delete(f, "gate/taint/taint.rego")
		}), true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := digestOf(t, tt.opts); (got == builtin) != tt.same {
				t.Errorf("got %s, the embedded policies have %s", got, builtin)
			}
		})
	}
}

func TestDigestFollowsReferredData(t *testing.T) {
	with := func(data string) string {
		files := fstest.MapFS{"limits/data.json": &fstest.MapFile{Data: []byte(data)}}
		err := fs.WalkDir(policies.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			text, err := fs.ReadFile(policies.FS(), name)
			if name == "gate/call/call.rego" {
				text = append(text, "\nasks_for_person if input.tool.name in data.limits.names\n"...)
			}
			files[name] = &fstest.MapFile{Data: text}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return digestOf(t, &Options{FS: files})
	}
	first := with(`{"names": ["a"], "unused": 1}`)
	if got := with(`{"names": ["a"], "unused": 2}`); got != first {
		t.Error("data that no rule refers to changed the digest")
	}
	if got := with(`{"names": ["a", "b"], "unused": 1}`); got == first {
		t.Error("data that a rule refers to did not change the digest")
	}
}
