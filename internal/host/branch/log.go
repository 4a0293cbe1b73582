package branch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Entry is a commit, with what ran before it was made, or since where nothing changed.
type Entry struct {
	Commit  string          `json:"commit"`
	Time    time.Time       `json:"time"`
	Subject string          `json:"subject"`
	Ran     []CommandRecord `json:"ran"`
}

// Log is the branch's own commits, the last one first.
func (b *Branch) Log(ctx context.Context) ([]Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, gitTime)
	defer cancel()
	var all []Entry
	var bad error
	err := b.git().Each(ctx, func(record string) {
		f := strings.SplitN(strings.TrimPrefix(record, "\n"), "\x1f", 4)
		const fields = 4
		var at int64
		if len(f) < fields {
			return
		}
		if _, err := fmt.Sscan(f[1], &at); err != nil {
			bad = err
			return
		}
		e := Entry{Commit: f[0], Time: time.Unix(at, 0), Subject: f[2], Ran: []CommandRecord{}}
		for line := range strings.Lines(f[3]) {
			var ran CommandRecord
			if json.Unmarshal([]byte(line), &ran) == nil { // others may note something, too
				e.Ran = append(e.Ran, ran)
			}
		}
		all = append(all, e)
	}, "log", "-z", "--format=%H%x1f%ct%x1f%s%x1f%N", "--notes=refs/notes/"+notes,
		"--end-of-options", heads+b.Sandbox, "^"+bases+b.Sandbox, "--")
	if err != nil || bad != nil {
		return nil, fmt.Errorf("read the branch of sandbox %s: %w", b.Sandbox, errors.Join(err, bad))
	}
	return all, nil
}
