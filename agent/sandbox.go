package agent

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// inSandbox reports whether every path that the arguments name lies in the
// sandbox, and, if the tool changes something, at no protected place. What it
// cannot tell is outside.
func (g *Gate) inSandbox(r *Request, names []string, arguments map[string]json.RawMessage, readOnly bool) bool {
	if !filepath.IsAbs(r.Root) {
		return false
	}
	root, err := resolve(r.Root)
	if err != nil {
		return false
	}
	roots := []string{root}
	for _, dir := range g.Catalogue.Sandbox {
		if dir, err := resolve(dir); err == nil {
			roots = append(roots, dir)
		}
	}
	dir := r.Dir
	if dir == "" {
		dir = r.Root
	}
	for name := range arguments {
		if isVariant(name, names) {
			return false
		}
	}
	for _, name := range names {
		raw, given := arguments[name]
		if !given || string(raw) == "null" {
			continue
		}
		var path string
		if json.Unmarshal(raw, &path) != nil || strings.HasPrefix(path, "~") || strings.ContainsRune(path, 0) {
			return false
		}
		if !filepath.IsAbs(path) {
			if !filepath.IsAbs(dir) {
				return false
			}
			path = dir + "/" + path // not cleaned yet: a link before .. leads elsewhere
		}
		path, err := resolve(path)
		if err != nil || !under(path, roots) || !readOnly && g.protected(path, root) {
			return false
		}
	}
	return true
}

// protected reports whether path is one of the catalogue's, or lies below one.
func (g *Gate) protected(path, root string) bool {
	for _, p := range g.Catalogue.Protect {
		if !filepath.IsAbs(p) {
			// The name anywhere in the project: a folder of it may be a project
			// of its own.
			rest, ok := strings.CutPrefix(path, root)
			if ok && strings.Contains(strings.ToLower(rest)+"/", "/"+strings.ToLower(filepath.Clean(p))+"/") {
				return true
			}
			continue
		}
		if p, err := resolve(p); err != nil || under(path, []string{p}) {
			return true
		}
	}
	return false
}

func under(path string, roots []string) bool {
	for _, root := range roots {
		if path == root || strings.HasPrefix(path, strings.TrimSuffix(root, "/")+"/") {
			return true
		}
	}
	return false
}

// resolve follows the links in an absolute path as far as it exists. Behind
// that nothing can be a link.
func resolve(path string) (string, error) {
	const maxParts = 1000
	resolved := "/"
	parts := strings.Split(path, "/")
	if len(parts) > maxParts {
		return "", errors.New("the path has too many parts")
	}
	for i, part := range parts {
		switch part {
		case "", ".":
			continue
		case "..":
			resolved = filepath.Dir(resolved)
			continue
		}
		next, err := filepath.EvalSymlinks(filepath.Join(resolved, part))
		if errors.Is(err, fs.ErrNotExist) {
			if _, dangling := os.Lstat(filepath.Join(resolved, part)); dangling == nil {
				return "", errors.New("the path has a link that leads nowhere yet")
			}
			for _, rest := range parts[i:] {
				if rest == ".." { // whatever comes to exist there may be a link
					return "", errors.New("the path goes up from what does not exist")
				}
			}
			return filepath.Join(append([]string{resolved}, parts[i:]...)...), nil
		}
		if err != nil {
			return "", err
		}
		resolved = next
	}
	return resolved, nil
}
