package workorder

import (
	"fmt"
	"strings"
)

// maxIdentity is the limit of name and email together, in bytes.
const maxIdentity = 500

// ParseIdentity parses git's format "Name <email>".
func ParseIdentity(s string) (Identity, error) {
	name, rest, ok := strings.Cut(s, "<")
	email, after, closed := strings.Cut(rest, ">")
	id := Identity{Name: strings.TrimSpace(name), Email: strings.TrimSpace(email)}
	bad := func(r rune) bool { return r < ' ' || r == 0x7f || r == '<' || r == '>' }
	switch {
	case !ok || !closed || strings.TrimSpace(after) != "" || id.Name == "" || !strings.Contains(id.Email, "@"):
		return Identity{}, fmt.Errorf("author %.80q does not have the form Name <email>", s)
	case len(s) > maxIdentity, strings.ContainsFunc(id.Name+id.Email, bad), strings.ContainsAny(id.Email, " \t"):
		return Identity{}, fmt.Errorf("author %.80q: name and email must be one line of at most %d bytes, without < and >", s, maxIdentity)
	}
	return id, nil
}

func (i Identity) String() string { return i.Name + " <" + i.Email + ">" }

// Trailer returns the commit trailer that names i as co-author.
func (i Identity) Trailer() string { return "Co-authored-by: " + i.String() }
