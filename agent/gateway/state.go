package gateway

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// statePrefix begins every requestState of this program. Others are a server's.
const statePrefix = "opa-gate."

// maxStates is how many questions are open at once.
const maxStates = 10_000

var errState = errors.New("the requestState is not one that waits for this call: make the call anew, without it")

// states seals what comes back with the answer to an input_required result. It
// travels through the client, which could be made to alter or repeat it: it is
// authenticated with a key of this process, bound to the call, and good once.
type states struct {
	key [32]byte

	mu      sync.Mutex
	waiting map[string]time.Time // until when a nonce is good
}

type stateBody struct {
	Nonce   string    `json:"nonce"`
	Pending string    `json:"pending"`
	Digest  []byte    `json:"digest"`
	Until   time.Time `json:"until"`
}

func newStates() *states {
	s := &states{waiting: make(map[string]time.Time)}
	_, _ = rand.Read(s.key[:]) // never fails
	return s
}

// seal returns the requestState for a question about a call.
func (s *states) seal(pending string, digest [32]byte, until time.Time) (string, error) {
	body, err := json.Marshal(stateBody{rand.Text(), pending, digest[:], until})
	if err != nil {
		return "", err
	}
	var b stateBody
	if err := json.Unmarshal(body, &b); err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) >= maxStates {
		now := time.Now()
		for nonce, until := range s.waiting {
			if !until.After(now) {
				delete(s.waiting, nonce)
			}
		}
		if len(s.waiting) >= maxStates {
			return "", fmt.Errorf("%d questions are open; answer some first", maxStates)
		}
	}
	s.waiting[b.Nonce] = b.Until
	text := base64.RawURLEncoding.EncodeToString(body)
	return statePrefix + text + "." + base64.RawURLEncoding.EncodeToString(s.mac(text)), nil
}

func (s *states) mac(text string) []byte {
	h := hmac.New(sha256.New, s.key[:])
	h.Write([]byte(text))
	return h.Sum(nil)
}

// open returns the pending escalation that a requestState is about, if it is of
// this process, about this call, and was not there before.
func (s *states) open(state string, digest [32]byte, now time.Time) (string, error) {
	text, sum, ok := strings.Cut(strings.TrimPrefix(state, statePrefix), ".")
	mac, err := base64.RawURLEncoding.DecodeString(sum)
	if !ok || err != nil || !hmac.Equal(mac, s.mac(text)) {
		return "", errState
	}
	body, err := base64.RawURLEncoding.DecodeString(text)
	var b stateBody
	if err != nil || json.Unmarshal(body, &b) != nil {
		return "", errState
	}
	s.mu.Lock()
	_, waits := s.waiting[b.Nonce]
	delete(s.waiting, b.Nonce)
	s.mu.Unlock()
	if !waits || now.After(b.Until) || !hmac.Equal(b.Digest, digest[:]) {
		return "", errState
	}
	return b.Pending, nil
}
