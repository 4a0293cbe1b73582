package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

const canary = `sk-ant/api+03 "Zürich"&<x>`

func TestForms(t *testing.T) {
	s := Named(map[string]string{"KEY": canary})
	j, err := json.Marshal(canary)
	if err != nil {
		t.Fatal(err)
	}
	var plainJSON bytes.Buffer
	enc := json.NewEncoder(&plainJSON)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(canary); err != nil {
		t.Fatal(err)
	}
	forms := map[string]string{
		"raw": canary, "json": string(j), "json without html": plainJSON.String(),
		"json with escaped slash": strings.ReplaceAll(string(j), "/", `\/`),
		"query":                   url.QueryEscape(canary), "path": url.PathEscape(canary),
		"query lower": lowerEscapes(url.QueryEscape(canary)),
		"ref":         strings.TrimPrefix(workorder.KeptRef("", "a/"+canary), workorder.KeptRef("", "")),
		"hex":         hex.EncodeToString([]byte(canary)), "HEX": strings.ToUpper(hex.EncodeToString([]byte(canary))),
	}
	for name, f := range forms {
		t.Run(name, func(t *testing.T) {
			got := s.String("a=" + f + ";")
			if !strings.Contains(got, "[redacted:KEY]") || strings.Contains(got, "api") {
				t.Errorf("%q was printed as %q", f, got)
			}
		})
	}
}

func TestBase64AtEveryAlignment(t *testing.T) {
	s := New("correct-horse-battery")
	for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding, base64.RawStdEncoding, base64.RawURLEncoding} {
		for pre := range 7 {
			for post := range 7 {
				text := strings.Repeat("\xff", pre) + "correct-horse-battery" + strings.Repeat("\xfe", post)
				got := s.String(enc.EncodeToString([]byte(text)))
				if !strings.Contains(got, "[redacted:x]") {
					t.Fatalf("%d bytes before, %d after: not found in %q", pre, post, got)
				}
				// Beside the mark, only the neighbours and the few mixed characters are left.
				if len(got)-len("[redacted:x]") > (pre+post)*8/6+8 {
					t.Errorf("%d before, %d after: too much is left: %q", pre, post, got)
				}
			}
		}
	}
}

func TestMultiLineValue(t *testing.T) {
	key := "-----BEGIN KEY-----\nMIIEowIBAAKCAQEAnowonderful\nQyNTUxOQAAACBmZmZmZmZmZm\n-----END KEY-----\n"
	s := Named(map[string]string{"SSH": key})
	for _, text := range []string{
		key, "x " + strings.ReplaceAll(key, "\n", "\r\n"),
		"  1| MIIEowIBAAKCAQEAnowonderful\n  2| QyNTUxOQAAACBmZmZmZmZmZm\n",
	} {
		if got := s.String(text); strings.Contains(got, "MIIE") || strings.Contains(got, "QyNT") {
			t.Errorf("%q was printed as %q", text, got)
		}
	}
	if text := "-----BEGIN KEY-----\n"; s.String(text) != text {
		t.Error("a line that every key has is no secret")
	}
}

func TestShortAndEmptyValues(t *testing.T) {
	s := Named(map[string]string{"A": "true", "B": "", "C": "long-enough", "D": "  12345\n"})
	if got := s.String("true 12345 long-enough"); got != "true 12345 [redacted:C]" {
		t.Errorf("got %q", got)
	}
	if got := strings.Join(s.Ignored(), ","); got != "A,D" {
		t.Errorf("ignored %q, want A,D", got)
	}
	var none *Set
	if none.String("x") != "x" || none.Ignored() != nil {
		t.Error("a nil set must change nothing")
	}
}

func TestOverlaps(t *testing.T) {
	for _, c := range []struct {
		name, in, want string
		values         []string
	}{
		{"twice in a row", "secretsecret", "[redacted:x][redacted:x]", []string{"secret"}},
		{"overlapping chain is one mark", "abcabcabcabcab!", "[redacted:x]!", []string{"abcabca", "cabcab"}},
		{"one within the other", "xx-secret-token-yy", "xx-[redacted:x]-yy", []string{"secret", "secret-token"}},
		{"prefix that does not go on", "secret-toke", "[redacted:x]-toke", []string{"secret", "secret-token"}},
		{"endless run", strings.Repeat("a", 1000), "[redacted:x]", []string{"aaaaaa"}},
		{"partial at the end", "my secre", "my secre", []string{"secret"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := New(c.values...).String(c.in); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if got := split(t, New(c.values...), c.in, 1); got != c.want {
				t.Errorf("byte by byte: got %q, want %q", got, c.want)
			}
		})
	}
}

// TestNothingIsHeldBackInVain is what makes live logs live: only the beginning
// of a value waits.
func TestNothingIsHeldBackInVain(t *testing.T) {
	var out bytes.Buffer
	w := New("secret-value").Writer(&out)
	for _, c := range []struct{ in, want string }{{"hello\n", "hello\n"}, {"se", ""}, {"a\n", "sea\n"}, {"x secret-val", "x "}} {
		out.Reset()
		if _, err := io.WriteString(w, c.in); err != nil {
			t.Fatal(err)
		}
		if out.String() != c.want {
			t.Errorf("after %q: %q was written, want %q", c.in, out.String(), c.want)
		}
	}
	out.Reset()
	if err := w.Close(); err != nil || out.String() != "secret-val" {
		t.Errorf("closing wrote %q, %v", out.String(), err)
	}
}

func TestErrorOfTheWriterBelow(t *testing.T) {
	full := errors.New("disk full")
	w := New("secret-value").Writer(writerFunc(func([]byte) (int, error) { return 0, full }))
	if _, err := w.Write([]byte("hello")); !errors.Is(err, full) {
		t.Errorf("got %v", err)
	}
	if err := w.Close(); !errors.Is(err, full) {
		t.Errorf("got %v", err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func split(tb testing.TB, s *Set, text string, n int) string {
	tb.Helper()
	var out bytes.Buffer
	w := s.Writer(&out)
	for i := 0; i < len(text); i += n {
		if _, err := io.WriteString(w, text[i:min(i+n, len(text))]); err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return out.String()
}

// FuzzSplit: however the text is split, the output is that of one write, and no
// value is in it.
func FuzzSplit(f *testing.F) {
	f.Add("abcabc", "bcabca", "xxabcabcabcaabcabcyyy")
	f.Add("aaaaaa", "aaaaaaab", "aaaaaaaaaaaaaaabaaaab")
	f.Add("secret-one", "one-secret", "secret-one-secret-one-secre")
	f.Fuzz(func(t *testing.T, a, b, text string) {
		if len(text) > 300 || len(a) > 100 || len(b) > 100 {
			t.Skip("covered by shorter ones")
		}
		s := New(a, b)
		var whole bytes.Buffer
		w := s.Writer(&whole)
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{1, 2, 3, 7} {
			if got := split(t, s, text, n); got != whole.String() {
				t.Fatalf("in pieces of %d: %q, whole: %q", n, got, whole.String())
			}
		}
		for i := range text {
			var out bytes.Buffer
			w := s.Writer(&out)
			_, _ = io.WriteString(w, text[:i])
			_, _ = io.WriteString(w, text[i:])
			_ = w.Close()
			if out.String() != whole.String() {
				t.Fatalf("split at %d: %q, whole: %q", i, out.String(), whole.String())
			}
		}
		rest := strings.ReplaceAll(whole.String(), "[redacted:x]", "\x00")
		for _, v := range []string{strings.TrimSpace(a), strings.TrimSpace(b)} {
			if len(v) >= MinValue && !strings.Contains(v, "\x00") && strings.Contains(rest, v) {
				t.Fatalf("%q is still in %q", v, rest)
			}
		}
	})
}

// TestRandomOverlaps is the fuzz test's property over a tiny alphabet, where
// overlaps are the rule.
func TestRandomOverlaps(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	word := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = "ab"[r.IntN(2)]
		}
		return string(b)
	}
	for range 2000 {
		s := New(word(6+r.IntN(4)), word(6+r.IntN(4)), word(6+r.IntN(9)))
		text := word(60)
		want := split(t, s, text, len(text))
		for n := 1; n < 8; n++ {
			if got := split(t, s, text, n); got != want {
				t.Fatalf("%q in pieces of %d: %q, whole: %q", text, n, got, want)
			}
		}
		if got := s.String(text); got != want {
			t.Fatalf("String: %q, Writer: %q", got, want)
		}
	}
}

func BenchmarkWriter(b *testing.B) {
	var pem strings.Builder
	r := rand.New(rand.NewPCG(3, 4))
	for range 40 {
		raw := make([]byte, 48)
		for i := range raw {
			raw[i] = byte(r.IntN(256))
		}
		pem.WriteString(base64.StdEncoding.EncodeToString(raw) + "\n")
	}
	set := Named(map[string]string{
		"A": "sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789", "G": "ghp_0123456789abcdefghijABCDEFGHIJ",
		"SSH": pem.String(),
	})
	b.Logf("%d states", len(set.m.nodes))
	for name, line := range map[string]string{
		"y":    "y\n",
		"log":  "2026-01-01T00:00:00Z INFO server: handled request method=GET path=/api/v1/users status=200 took=12ms\n",
		"near": "sk-ant-api03-abcdefghijklmnopqrstuvwxyz012345678x\n",
	} {
		b.Run(name, func(b *testing.B) {
			data := []byte(strings.Repeat(line, 32<<10/len(line)))
			w := set.Writer(io.Discard)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := w.Write(data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
