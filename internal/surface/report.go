package surface

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/git"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Report compares two commits, given by their full ids, and tells what changed of the things that run, or decide
// what runs. An empty base is an empty repository. It reads objects only; see the package's comment.
func Report(ctx context.Context, repo git.Repo, base, head string) ([]workorder.SurfaceFinding, error) {
	if !git.ValidSHA(head) || base != "" && !git.ValidSHA(base) {
		return nil, fmt.Errorf("report the execution surface: %s and %s must be full commit ids", quote(base), quote(head))
	}
	if base == "" {
		if base = emptyTreeSHA1; len(head) == 64 {
			base = emptyTreeSHA256
		}
	}
	o := newObjects(repo)
	cs, more, err := o.changes(ctx, base, head)
	if err != nil {
		return nil, err
	}
	if len(cs) == 0 {
		return []workorder.SurfaceFinding{}, nil
	}
	links, err := o.links(ctx, head)
	if err != nil {
		return nil, err
	}
	follow(cs, links)
	// Settings first: they are read when the whole is too large.
	slices.SortStableFunc(cs, func(a, b *change) int { return -boolCompare(a.rule != nil, b.rule != nil) })

	s := newSink()
	var unread []*change
	room := maxPatterns
	err = o.load(ctx, cs, func(c *change) {
		s.c = c
		c.room = &room
		examine(c, s)
		if c.why != "" && !c.deleted() && !mediaName(c) {
			unread = append(unread, &change{path: c.path, lower: c.lower, oldMode: c.oldMode, newMode: c.newMode, newID: c.newID, newSize: c.newSize, rule: c.rule, why: c.why})
		}
	})
	if err != nil {
		return nil, err
	}
	if err := o.lookInto(ctx, unread, s); err != nil {
		return nil, err
	}
	tellUnread(unread, more, s)
	return s.findings(), nil
}

// follow gives a file the rule of the link that leads to it.
func follow(cs []*change, links map[string]string) {
	if len(links) == 0 {
		return
	}
	for _, c := range cs {
		if c.rule != nil {
			continue
		}
		rest := ""
		for at := c.lower; at != "."; at = path.Dir(at) {
			if from, ok := links[at]; ok {
				rest = strings.TrimPrefix(c.lower, at)
				c.rule, c.as = classify(from+rest), from+rest
				break
			}
		}
	}
}

// examine runs all checks on one change.
func examine(c *change, s *sink) {
	checkPath(c, s)
	if !c.read {
		checkMode(c, s)
		return
	}
	switch {
	case c.old == c.new && isFile(c.oldMode) && isFile(c.newMode):
		// Only its mode changed.
	case c.newMode == modeLink:
		checkLink(c, s)
	case isFile(c.newMode) && isBinary(c.new):
		checkBinary(c, s, c.new)
		if c.rule != nil && c.rule.kind != kindBuild && !s.found(kindBinary) {
			s.add(c.rule.kind, 0, true, "binary content in the place of settings")
		}
	case isFile(c.newMode):
		examineText(c, s)
	case c.deleted() && c.rule != nil && isFile(c.oldMode):
		c.rule.check(c, s)
	}
	checkMode(c, s)
	if c.created() && keyFile.MatchString(c.lower) {
		s.add(kindKey, 0, true, "it has the name of a private key or a key store")
	}
}

func examineText(c *change, s *sink) {
	if c.oldMode != c.newMode && !isFile(c.oldMode) || isBinary(c.old) {
		c.old = "" // it was a link or binary: all of it is new
	}
	if programKind([]byte(c.new[:min(len(c.new), sniffBytes)])) != "" {
		checkBinary(c, s, c.new)
	}
	if c.rule != nil {
		as := *c
		if c.as != "" { // it is judged by the name that the link gives it
			as.lower = c.as
		}
		as.rule.check(&as, s)
		if as.cut {
			s.add(kindUnread, 0, true, "only its beginning was looked at: so much of it is new")
		}
	}
	checkHidden(c, s)
	checkPayload(c, s)
	if strings.HasSuffix(c.lower, ".go") {
		for _, l := range c.added {
			if d, ok := strings.CutPrefix(l.text, "//go:generate "); ok {
				s.add(kindBuild, l.n, suspicious(d) != "", "go generate runs: %s", quote(d))
			} else if goFlags(l.text) {
				s.add(kindBuild, l.n, false, "flags of the C compiler: %s", quote(l.text))
			}
		}
	}
}

// goFlags is a directive that changes how the Go toolchain builds.
func goFlags(t string) bool {
	t = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(t), "//"))
	return strings.HasPrefix(t, "#cgo ") && strings.Contains(t, "FLAGS")
}

// lookInto reads the beginnings of files that are too large, to tell programs among them.
func (o *objects) lookInto(ctx context.Context, cs []*change, s *sink) error {
	for _, c := range cs {
		if c.newSize <= maxFile || !isFile(c.newMode) || o.seen >= maxSniffs {
			continue
		}
		b, err := o.beginning(ctx, c.newID)
		if err != nil {
			return err
		}
		s.c = c
		checkBinary(c, s, string(b))
		if picture(b) {
			c.why = ""
		}
	}
	return nil
}

// tellUnread says what was not read: settings one by one, the rest in one line.
func tellUnread(cs []*change, more int, s *sink) {
	rest := &change{}
	n := more
	for _, c := range cs {
		s.c = c
		switch {
		case c.why == "" || s.found(kindBinary):
		case c.rule != nil:
			s.add(kindUnread, 0, true, "it was not read: %s", c.why)
		default:
			if rest.path == "" {
				rest = c
			}
			n++
		}
	}
	if n == 0 {
		return
	}
	s.c = rest
	if rest.path == "" {
		s.add(kindUnread, 0, true, "%s not looked at: the change is too large", plural(n, "changed file"))
		return
	}
	text := fmt.Sprintf("it was not read: %s", rest.why)
	if n > 1 {
		text += fmt.Sprintf("; nor were %s", plural(n-1, "other changed file"))
	}
	s.add(kindUnread, 0, strings.HasPrefix(rest.why, "the change") || sourceFile(rest), "%s", text)
}
