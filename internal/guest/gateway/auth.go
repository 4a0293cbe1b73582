package gateway

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// placeholderPrefix makes a placeholder recognisable everywhere. It is long
// because some programs mask their key in all output, and a short one occurs in ordinary words.
const placeholderPrefix = "sandbox-agent-placeholder-"

func newPlaceholder() string {
	var b [20]byte
	rand.Read(b[:]) // never fails: crypto/rand aborts the program instead
	return placeholderPrefix + hex.EncodeToString(b[:])
}

// keyring has the keys of one route by placeholder.
type keyring struct {
	// vars maps the route's variables to their placeholders.
	vars map[string]string
	keys map[string]string
}

// newKeyring makes a placeholder for each key, under the key's name or else under the API's usual one. A
// route without keys gets one, too: programs refuse to start without a key, even if the server needs none.
func newKeyring(r workorder.ModelRoute, secrets map[string]string) (keyring, error) {
	k := keyring{vars: map[string]string{}, keys: map[string]string{}}
	for _, name := range r.Keys {
		value := secrets[name]
		if value == "" || strings.ContainsAny(value, "\r\n\x00") {
			return keyring{}, fmt.Errorf("model gateway: the secret %s is empty or has line breaks: it cannot be a key of %s", name, r.API)
		}
		p := newPlaceholder()
		k.vars[name], k.keys[p] = p, value
	}
	usual := r.API.KeyVariables()
	switch {
	case len(r.Keys) == 0:
		k.vars[usual[0]] = newPlaceholder()
	case secrets[usual[0]] == "" && !slices.ContainsFunc(r.Keys, func(name string) bool { return slices.Contains(usual, name) }):
		// The key has a name of the project's own, but programs look for the usual one.
		k.vars[usual[0]] = k.vars[r.Keys[0]]
	}
	return k, nil
}

// places are the headers in which clients send a key.
var places = []struct{ header, scheme string }{
	{"X-Api-Key", ""}, {"Authorization", "Bearer "}, {"Api-Key", ""}, {"X-Goog-Api-Key", ""},
}

// put replaces each placeholder in the client's headers from with its key in to, in the same header.
// It copies no other credential of the client.
func (k keyring) put(from, to http.Header) error {
	found := false
	for _, p := range places {
		values := from.Values(p.header)
		if len(values) > 1 {
			return fmt.Errorf("the header %s is given more than once", p.header)
		}
		if len(values) == 0 {
			continue
		}
		scheme, value := "", values[0]
		if p.scheme != "" {
			if len(value) < len(p.scheme) || !strings.EqualFold(value[:len(p.scheme)], p.scheme) {
				continue
			}
			scheme, value = p.scheme, value[len(p.scheme):]
		}
		if key, ok := k.keys[strings.TrimSpace(value)]; ok {
			to.Set(p.header, scheme+key)
			found = true
		}
	}
	if !found && len(k.keys) > 0 {
		names := make([]string, 0, len(k.vars))
		for n := range k.vars {
			names = append(names, n)
		}
		slices.Sort(names)
		return fmt.Errorf("the request has no placeholder of a key: send the value of the variable %s as the sandbox has it, unchanged; "+
			"keys of your own cannot be used", strings.Join(names, " or "))
	}
	return nil
}
