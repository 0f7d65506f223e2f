package approvals

import (
	"embed"
	"net/http"
	"path"
	"strconv"
)

//go:embed page
var pageFiles embed.FS

// pagePolicy lets the page load its own files and ask its own server, and nothing
// else. No text becomes markup or a script.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

var pageTypes = map[string]string{".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
	".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}

// pageRoutes are the page at /approvals, and its files below. They hold nothing
// that is secret.
func pageRoutes() []Route {
	files, err := pageFiles.ReadDir("page")
	if err != nil {
		panic(err) // they are a part of the program
	}
	var routes []Route
	for _, f := range files {
		pattern := "GET /approvals/" + f.Name()
		if f.Name() == "index.html" {
			pattern = "GET /approvals"
		}
		text := must(pageFiles.ReadFile("page/" + f.Name()))
		kind := pageTypes[path.Ext(f.Name())]
		routes = append(routes, Route{pattern, "approvals", func(w http.ResponseWriter, _ *http.Request) {
			h := w.Header()
			secure(h)
			h.Set("Content-Security-Policy", pagePolicy)
			h.Set("Cross-Origin-Opener-Policy", "same-origin")
			h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
			h.Set("Content-Type", kind)
			h.Set("Content-Length", strconv.Itoa(len(text)))
			_, _ = w.Write(text)
		}})
	}
	return routes
}
