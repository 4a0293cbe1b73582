package localrepo

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

const (
	// maxCommands bounds the refs of one push.
	maxCommands = 1000
	// maxPkt is the longest line of git's protocol.
	maxPkt = 65520
)

// commands are the requests of a push, read before its objects.
type commands struct {
	refs     []string
	caps     string
	sideband bool
	cert     bool
}

// readCommands reads the command list of a push, and also returns it verbatim.
func readCommands(r io.Reader) (verbatim string, c commands, err error) {
	var b strings.Builder
	size := make([]byte, 4)
	for {
		if _, err := io.ReadFull(r, size); err != nil {
			if errors.Is(err, io.EOF) && b.Len() == 0 {
				return "", c, nil
			}
			return "", c, err
		}
		b.Write(size)
		n, err := strconv.ParseUint(string(size), 16, 16)
		if err != nil {
			return "", c, fmt.Errorf("bad line length %q", size)
		}
		if n == 0 {
			return b.String(), c, nil
		}
		if n < 4 || n > maxPkt {
			return "", c, fmt.Errorf("bad line length %d", n)
		}
		line := make([]byte, n-4)
		if _, err := io.ReadFull(r, line); err != nil {
			return "", c, err
		}
		b.Write(line)
		if err := c.add(string(line)); err != nil {
			return "", c, err
		}
	}
}

func (c *commands) add(line string) error {
	cmd, caps, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\x00")
	if caps != "" {
		c.caps = caps
		c.sideband = strings.Contains(" "+caps+" ", " side-band-64k ")
	}
	f := strings.SplitN(cmd, " ", 3)
	switch {
	case f[0] == "shallow":
		return nil
	case f[0] == "push-cert":
		c.cert = true
		return nil
	case len(f) != 3:
		if c.cert {
			return nil // refused as a whole
		}
		return fmt.Errorf("bad command %q", cmd)
	case len(c.refs) == maxCommands:
		return fmt.Errorf("more than %d refs in one push", maxCommands)
	}
	c.refs = append(c.refs, strings.TrimSuffix(f[2], "\n"))
	return nil
}

// forbidden lists the commands of the push that are not allowed.
func (c *commands) forbidden(taskID, branch string) []string {
	var bad []string
	if c.cert {
		bad = append(bad, "a signed push")
	}
	for _, ref := range c.refs {
		if !allowedRef(ref, taskID, branch) {
			bad = append(bad, ref)
		}
	}
	return bad
}

// allowedRef reports whether the run may write the ref: its branch, and all refs below
// its own folder of bookkeeping refs.
func allowedRef(ref, taskID, branch string) bool {
	own := "refs/sandbox-agent/" + taskID + "/"
	return ref == "refs/heads/"+branch || strings.HasPrefix(ref, own) && len(ref) > len(own)
}

// refusal answers a push in git's own protocol, so that git's user reads the reason for
// every ref and not a status number.
func (c *commands) refusal(bad []string) string {
	report := pkt("unpack ok\n")
	for _, ref := range c.refs {
		report += pkt("ng " + ref + " this run may only push its own branch\n")
	}
	report += "0000"
	if !c.sideband {
		return report
	}
	msg := "refused: " + strings.Join(bad, ", ") + "\n"
	out := pkt("\x02" + msg[:min(len(msg), 900)])
	for len(report) > 0 {
		n := min(len(report), maxPkt-5) // minus the bytes of length and band
		out, report = out+pkt("\x01"+report[:n]), report[n:]
	}
	return out + "0000"
}

func pkt(s string) string { return fmt.Sprintf("%04x%s", len(s)+4, s) }
