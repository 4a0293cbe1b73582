package yamlkeys

import (
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// InSecrets is the prefix of the paths below secrets.
const InSecrets = "secrets."

const masked = "***"

// source is the text of a file, prepared for excerpts without secrets. It works on lines, so that invalid YAML is as safe.
type source struct {
	name  string
	lines []string
	// hidden are secrets found while decoding, to be masked everywhere.
	hidden []string
}

func newSource(name, content string) *source {
	return &source{name: name, lines: maskLines(splitLines(content))}
}

// lineBreaks are YAML's line ends.
var lineBreaks = lazyregexp.New("\r\n|[\n\r\u0085\u2028\u2029]")

func splitLines(content string) []string { return lineBreaks.Split(content, -1) }

// line returns the line with this number without secrets.
func (s *source) line(n int) string {
	if n < 1 || n > len(s.lines) {
		return ""
	}
	return s.clean(s.lines[n-1])
}

// clean masks known and suspected secrets in a text.
func (s *source) clean(t string) string {
	for _, h := range s.hidden {
		t = strings.ReplaceAll(t, h, masked)
	}
	return maskTokens(t)
}

// shortestHidden keeps masking from removing every "a" of a message; maskLines covers shorter literals.
const shortestHidden = 4

// hide masks a value, and each line of it, in excerpts.
func (s *source) hide(v string) {
	for l := range strings.SplitSeq(v, "\n") {
		if l = strings.TrimSpace(l); len(l) >= shortestHidden {
			s.hidden = append(s.hidden, l)
		}
	}
}

var (
	// token matches well-known forms of credentials.
	token = lazyregexp.New(`sk-ant-[A-Za-z0-9_-]{4,}|sk-(?:proj|svcacct)-[A-Za-z0-9_-]{8,}|gh[pousr]_[A-Za-z0-9]{8,}|` +
		`github_pat_[A-Za-z0-9_]{8,}|glpat-[A-Za-z0-9_-]{8,}|xox[abprs]-[A-Za-z0-9-]{8,}|(?:AKIA|ASIA)[0-9A-Z]{12,}|` +
		`(?:sk|rk)_live_[A-Za-z0-9]{8,}|SG\.[A-Za-z0-9_-]{16,}\.|AIza[0-9A-Za-z_-]{30,}|` +
		`\bsk-[A-Za-z0-9]{20,}|-----BEGIN [A-Z ]*PRIVATE KEY-----`)
	userinfo   = lazyregexp.New(`://[^/@\s"']+@`)
	sshUser    = lazyregexp.New(`^://[A-Za-z0-9._-]+@$`)
	reference  = lazyregexp.New(`^["']?(env|file|cmd)://`)
	secretsKey = lazyregexp.New(`(?i)(?:^|[\s{,?-])["']?secre[a-z]*["']?\s*:`)
	secretLike = lazyregexp.New(`(?i)["']?\b[a-z0-9_.-]*(?:password|passwd|token|api_?key|secret|` +
		`private_?key|credential)[a-z0-9_.-]*["']?\s*:\s*`)
	entryKey = lazyregexp.New(`^(\s*(?:\?\s+)?["']?[A-Za-z_][A-Za-z0-9_.-]*["']?\s*:(?:\s+|$))(.*)$`)
)

// LooksSecret reports whether a text contains a credential of a well-known form.
func LooksSecret(s string) bool { return token.MatchString(s) }

// maskTokens masks credentials by their form alone.
func maskTokens(t string) string {
	t = token.ReplaceAllString(t, masked)
	return userinfo.ReplaceAllStringFunc(t, func(u string) string {
		if sshUser.MatchString(u) && len(u) <= len("://git@")+12 && !token.MatchString(u) {
			// A short plain user, as in ssh://git@host, explains the line.
			return u
		}
		return "://" + masked + "@"
	})
}

// maskLines masks the values below every `secrets:` and of keys that sound like a credential, except references.
func maskLines(lines []string) []string {
	out := make([]string, len(lines))
	block := -1 // indentation of the secrets key whose block the line is in
	inKey := false
	for i, l := range lines {
		indent := len(l) - len(strings.TrimLeft(l, " \t"))
		if block >= 0 && strings.TrimSpace(l) != "" && indent <= block {
			block = -1
		}
		inKey = inKey && !strings.Contains(l, "-----END")
		switch at := secretsKey.FindStringIndex(l); {
		case inKey:
			out[i] = l[:indent] + masked
		case block >= 0:
			out[i] = maskEntry(l, indent)
		case at != nil:
			block = indent
			out[i] = l[:at[1]]
			if rest := strings.TrimSpace(l[at[1]:]); rest != "" && !strings.HasPrefix(rest, "#") {
				out[i] += " " + masked
			}
		default:
			out[i] = l
			if at := secretLike.FindStringIndex(l); at != nil && !reference.MatchString(l[at[1]:]) && at[1] < len(l) {
				out[i] = l[:at[1]] + masked
			}
		}
		inKey = inKey || strings.Contains(l, "-----BEGIN")
	}
	return out
}

// maskEntry masks a line of a secrets block unless it is a reference.
func maskEntry(l string, indent int) string {
	m := entryKey.FindStringSubmatch(l)
	switch {
	case strings.TrimSpace(l) == "":
		return l
	case m == nil:
		return l[:indent] + masked
	case m[2] == "" || reference.MatchString(m[2]) || slices.Contains(workorder.SecretUses(), workorder.SecretUse(m[2])):
		return l
	}
	return m[1] + masked
}
