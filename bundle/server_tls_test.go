package bundle

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestCertificateFiles(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	if _, err := CertificateFiles(certFile, keyFile, nil); err == nil {
		t.Error("files that do not exist are no error")
	}
	put := func(age time.Duration) []byte {
		t.Helper()
		cert, text := selfSigned(t)
		key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
		if err != nil {
			t.Fatal(err)
		}
		write(t, dir, "cert.pem", string(text))
		write(t, dir, "key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})))
		for _, file := range []string{certFile, keyFile} {
			if err := os.Chtimes(file, time.Time{}, time.Now().Add(-age)); err != nil {
				t.Fatal(err)
			}
		}
		return cert.Certificate[0]
	}
	one := put(time.Hour)
	log := &syncBuffer{}
	get, err := CertificateFiles(certFile, keyFile, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, want []byte) {
		t.Helper()
		if c, err := get(nil); err != nil || !bytes.Equal(c.Certificate[0], want) {
			t.Errorf("%s: it is another certificate (%v)", what, err)
		}
	}
	check("at first", one)
	two := put(time.Minute)
	eventually(t, "the new one is used", func() bool { c, err := get(nil); return err == nil && bytes.Equal(c.Certificate[0], two) })
	write(t, dir, "cert.pem", "text")
	eventually(t, "the log tells of what cannot be used", func() bool { check("broken", two); return strings.Contains(log.String(), "level=ERROR") })
}
