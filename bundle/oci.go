package bundle

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/content/memory"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"
	"oras.land/oras-go/v2/registry/remote/retry"
)

// A PlainHTTP says which registries may be spoken to without TLS.
type PlainHTTP int

// Which registries they are. NoPlainHTTP is the zero value.
const (
	NoPlainHTTP       PlainHTTP = iota
	PlainHTTPLoopback           // those on this machine
	PlainHTTPAny                // all: whoever is on the way reads and changes what is sent
)

// RemoteOptions say how a registry is spoken to. The zero value speaks TLS, with
// the credentials that docker login has left behind.
type RemoteOptions struct {
	PlainHTTP  PlainHTTP
	Credential *Credential   // nil: that of docker's configuration, or none
	Timeout    time.Duration // of the whole; 0 is DefaultTimeout
}

// DefaultTimeout is how long a push or a pull may take.
const DefaultTimeout = 2 * time.Minute

// A Credential is what a registry knows a user by. [NewCredential] makes one.
type Credential struct{ of func() auth.Credential } // a function prints nothing of it

// NewCredential returns a user's name and password, or without a name a token
// that the registry takes as it is.
func NewCredential(username, secret string) *Credential {
	c := auth.Credential{Username: username, Password: secret}
	if username == "" {
		c = auth.Credential{AccessToken: secret}
	}
	return &Credential{func() auth.Credential { return c }}
}

// Remote is where a bundle stands in a registry.
type Remote struct {
	Reference string `json:"reference"` // as it was asked for
	Digest    string `json:"digest"`    // of the manifest: REPOSITORY@DIGEST is just this bundle
	Layer     string `json:"layer"`     // sha256:HEX of the bundle
	Bytes     int    `json:"bytes"`
}

const (
	maxManifest   = 4 << 20
	maxIndexDepth = 4 // as OPA's own
)

// Push puts a bundle into a registry, under a reference as
// registry.example/policies/gate:v1, such that OPA can pull it.
func Push(ctx context.Context, text []byte, reference string, opts *RemoteOptions) (*Remote, error) {
	if _, err := unpack(text); err != nil {
		return nil, err
	}
	b, err := open(text)
	if err != nil {
		return nil, err
	}
	repo, err := repository(reference, opts)
	if err != nil {
		return nil, err
	}
	if err := repo.Reference.ValidateReferenceAsTag(); err != nil {
		return nil, fmt.Errorf("%w: %q has no tag to push to, expected REGISTRY/REPOSITORY:TAG", ErrOptions, reference)
	}
	ctx, cancel := limited(ctx, opts)
	defer cancel()
	store := memory.New()
	layer, err := put(ctx, store, ocispec.MediaTypeImageLayerGzip, text)
	if err != nil {
		return nil, err
	}
	layer.Annotations = map[string]string{ocispec.AnnotationTitle: "bundle.tar.gz"}
	config, err := configOf(text)
	if err != nil {
		return nil, err
	}
	described, err := put(ctx, store, ocispec.MediaTypeImageConfig, config)
	if err != nil {
		return nil, err
	}
	manifest, err := json.Marshal(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
		Config: described, Layers: []ocispec.Descriptor{layer},
		Annotations: map[string]string{ocispec.AnnotationRevision: b.Manifest.Revision},
	})
	if err != nil {
		return nil, err
	}
	root, err := put(ctx, store, ocispec.MediaTypeImageManifest, manifest)
	if err != nil {
		return nil, err
	}
	tag := repo.Reference.Reference
	if err := store.Tag(ctx, root, tag); err != nil {
		return nil, err
	}
	if _, err := oras.Copy(ctx, store, tag, repo, tag, oras.DefaultCopyOptions); err != nil {
		return nil, remoteError("push to", reference, err)
	}
	return &Remote{reference, root.Digest.String(), layer.Digest.String(), len(text)}, nil
}

func put(ctx context.Context, store *memory.Store, mediaType string, text []byte) (ocispec.Descriptor, error) {
	d := content.NewDescriptorFromBytes(mediaType, text)
	err := store.Push(ctx, d, bytes.NewReader(text))
	return d, err
}

// configOf returns the configuration of an image with one layer. Registries look
// for it. The platform means nothing, but for OPA, which passes over what is for an
// unknown one.
func configOf(text []byte) ([]byte, error) {
	zipped, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	digester := digest.Canonical.Digester()
	if _, err := io.Copy(digester.Hash(), zipped); err != nil {
		return nil, err
	}
	return json.Marshal(ocispec.Image{
		Platform: ocispec.Platform{Architecture: "amd64", OS: "linux"},
		RootFS:   ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{digester.Digest()}},
	})
}

// Pull fetches a bundle from a registry, under a reference with a tag or with a
// digest. The bytes are those that the manifest names by their digest, and the
// manifest is the one of the reference's digest, if it has one. Who has made them
// is another question: see [Verify].
func Pull(ctx context.Context, reference string, opts *RemoteOptions) ([]byte, *Remote, error) {
	repo, err := repository(reference, opts)
	if err != nil {
		return nil, nil, err
	}
	if repo.Reference.Reference == "" {
		return nil, nil, fmt.Errorf("%w: %q has neither tag nor digest, expected REGISTRY/REPOSITORY:TAG", ErrOptions, reference)
	}
	ctx, cancel := limited(ctx, opts)
	defer cancel()
	root, err := repo.Resolve(ctx, repo.Reference.Reference)
	if err != nil {
		return nil, nil, remoteError("pull from", reference, err)
	}
	layer, err := layerOf(ctx, repo, root, 0)
	if err != nil {
		return nil, nil, remoteError("pull from", reference, err)
	}
	if layer.Size > MaxPacked {
		return nil, nil, fmt.Errorf("%w: %s has %d bytes, a bundle may have %d", ErrTooLarge, reference, layer.Size, MaxPacked)
	}
	text, err := content.FetchAll(ctx, repo, layer)
	if err != nil {
		return nil, nil, remoteError("pull from", reference, err)
	}
	if _, err := unpack(text); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", reference, err)
	}
	return text, &Remote{reference, root.Digest.String(), layer.Digest.String(), len(text)}, nil
}

// layerOf returns the layer that OPA would take for the bundle.
func layerOf(ctx context.Context, repo *remote.Repository, at ocispec.Descriptor, depth int) (layer ocispec.Descriptor, err error) {
	if at.Size > maxManifest {
		return layer, fmt.Errorf("%w: its manifest has %d bytes", ErrTooLarge, at.Size)
	}
	text, err := content.FetchAll(ctx, repo, at)
	if err != nil {
		return layer, err
	}
	var manifest struct {
		Layers    []ocispec.Descriptor `json:"layers"`
		Manifests []ocispec.Descriptor `json:"manifests"`
	}
	if err := json.Unmarshal(text, &manifest); err != nil {
		return layer, fmt.Errorf("%w: its manifest is not JSON", ErrNotBundle)
	}
	for _, l := range manifest.Layers {
		if l.MediaType == ocispec.MediaTypeImageLayerGzip {
			return l, nil
		}
	}
	for _, m := range manifest.Manifests {
		if p := m.Platform; depth == maxIndexDepth || p != nil && p.OS == "unknown" && p.Architecture == "unknown" {
			continue
		}
		if layer, err = layerOf(ctx, repo, m, depth+1); !errors.Is(err, ErrNotBundle) {
			return layer, err
		}
	}
	return layer, fmt.Errorf("%w: no layer in it is of the type %s", ErrNotBundle, ocispec.MediaTypeImageLayerGzip)
}

// repository returns the client for a reference.
func repository(reference string, opts *RemoteOptions) (*remote.Repository, error) {
	if opts == nil {
		opts = &RemoteOptions{}
	}
	ref, err := registry.ParseReference(reference)
	if err != nil {
		return nil, fmt.Errorf("%w: %q is no reference, expected REGISTRY/REPOSITORY:TAG as in registry.example/policies/gate:v1", ErrOptions, reference)
	}
	if opts.PlainHTTP == PlainHTTPLoopback && !onThisMachine(ref.Host()) {
		return nil, fmt.Errorf("%w: %s is not on this machine, so it is not spoken to without TLS", ErrOptions, ref.Registry)
	}
	client := &auth.Client{
		Client: &http.Client{Transport: retry.NewTransport(http.DefaultTransport), CheckRedirect: keepTLS},
		Cache:  auth.NewCache(),
	}
	client.SetUserAgent("opa-gate")
	if opts.Credential != nil {
		client.Credential = auth.StaticCredential(ref.Registry, opts.Credential.of())
	} else {
		store, err := credentials.NewStoreFromDocker(credentials.StoreOptions{})
		if err != nil { // what it says could quote the file
			return nil, fmt.Errorf("%w: docker's configuration with the credentials cannot be read", ErrOptions)
		}
		client.Credential = credentials.Credential(store)
	}
	return &remote.Repository{Reference: ref, Client: client, PlainHTTP: opts.PlainHTTP != NoPlainHTTP}, nil
}

func onThisMachine(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// keepTLS follows a registry elsewhere, but not out of TLS.
func keepTLS(next *http.Request, before []*http.Request) error {
	switch {
	case len(before) >= 10:
		return errors.New("it was sent on ten times")
	case before[0].URL.Scheme == "https" && next.URL.Scheme != "https":
		return errors.New("it was sent on to an address without TLS")
	}
	return nil
}

func limited(ctx context.Context, opts *RemoteOptions) (context.Context, context.CancelFunc) {
	timeout := DefaultTimeout
	if opts != nil && opts.Timeout > 0 {
		timeout = opts.Timeout
	}
	return context.WithTimeout(ctx, timeout)
}

// remoteError says what could not be done. Nothing that the client says has a
// credential in it.
func remoteError(what, reference string, err error) error {
	switch {
	case errors.Is(err, ErrTooLarge), errors.Is(err, ErrNotBundle):
		return fmt.Errorf("%s: %w", reference, err)
	case errors.Is(err, errdef.ErrNotFound):
		return fmt.Errorf("%w: %s %s: there is nothing of that name: %w", ErrRegistry, what, reference, err)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: %s %s: it took too long: %w", ErrRegistry, what, reference, err)
	}
	return fmt.Errorf("%w: %s %s: %w", ErrRegistry, what, reference, err)
}
