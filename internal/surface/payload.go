package surface

import (
	"bytes"
	"encoding/base64"
	"slices"
	"strings"
	"unicode"

	"github.com/sandbox-agent/sandbox-agent/internal/pattern"
)

const (
	longLine   = 1000 // characters; longer lines of source are hardly ever written by hand
	gap        = 100  // blanks in a line, after which more code is beyond the edge of most screens
	blobLength = 1024 // characters of encoded data; shorter ones are keys and checksums
	blobWidth  = 40   // a line of encoded data has at least so many characters
)

// sourceExt are files that are programs, or are made part of one.
var sourceExt = keys(".go .py .pyw .pyi .js .mjs .cjs .jsx .ts .tsx .mts .cts .rb .rs .java .kt .kts .scala .groovy .c .h .cc .cpp .cxx .hpp .cs .fs .vb .php .pl .pm .lua .swift .m .mm .dart .ex .exs .erl .clj .cljs .hs .ml .r .jl .sh .bash .zsh .fish .ps1 .psm1 .bat .cmd .sql .vue .svelte .astro .zig .nim .d .v .sol .tf .nix .el .vim .cmake .mk .gradle .bzl .html .htm .jsp .erb .ejs .awk .sed .tcl .asm .s .f90 .pas .ada .coffee .gd .vbs .yml .yaml .toml .proto .graphql")

func sourceFile(c *change) bool {
	return sourceExt[c.ext()] || strings.HasPrefix(c.new, "#!")
}

// generated are names of files that programs write and nobody reads.
func generated(c *change) bool {
	l := c.lower
	for _, part := range []string{".min.", ".bundle.", ".pb.go", "_pb2.py", ".g.dart", ".generated.", "_generated.", ".designer.", "-min.", ".snap", "/testdata/", "/__snapshots__/", "/fixtures/", "/dist/", "/cassettes/"} {
		if strings.Contains("/"+l, part) {
			return true
		}
	}
	return false
}

// privateKey are the beginnings of keys and the forms of tokens. A finding never quotes them.
var privateKey = pattern.New(`-----BEGIN ([A-Z0-9]+ )*PRIVATE KEY( BLOCK)?-----|\bPuTTY-User-Key-File-|\b(AKIA|ASIA)[A-Z0-9]{16}\b|\bgh[pousr]_[A-Za-z0-9]{36}\b|\bgithub_pat_[A-Za-z0-9_]{60,}|\bglpat-[A-Za-z0-9_-]{20}\b|\bxox[baprs]-[0-9]+-[A-Za-z0-9-]{20,}|\bsk-ant-[A-Za-z0-9-]{3,}-[A-Za-z0-9_-]{60,}|\bsk_live_[A-Za-z0-9]{20,}|\bAIza[A-Za-z0-9_-]{35}\b|\bnpm_[A-Za-z0-9]{36}\b|\bpypi-[A-Za-z0-9_-]{60,}|\bya29\.[A-Za-z0-9_-]{40,}|AGE-SECRET-KEY-1[A-Z0-9]{50,}`)

// keyHints are parts of what privateKey finds; most files have none, and need no pattern.
var keyHints = []string{"PRIVATE KEY", "PuTTY-User", "AKIA", "ASIA", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox", "sk-ant-", "sk_live_", "AIza", "npm_", "pypi-", "ya29.", "AGE-SECRET-KEY"}

func mayHaveKey(s string) bool {
	return slices.ContainsFunc(keyHints, func(h string) bool { return strings.Contains(s, h) })
}

// documented are example tokens of vendors' own documentation.
var documented = pattern.New(`EXAMPLE`)

var keyFile = pattern.New(`(^|/)(id_(rsa|dsa|ecdsa|ed25519)|[^/]*\.(p12|pfx|jks|keystore|ppk|kdbx))$`)

// checkPayload looks at new lines of a text for keys, and in source for encoded data and lines that hide code.
func checkPayload(c *change, s *sink) {
	c.diff()
	source := sourceFile(c) || c.rule != nil && c.rule.kind != kindLock
	var run blobRun
	keys, written := mayHaveKey(c.new), generated(c)
	for _, l := range c.added {
		if keys {
			checkKey(l, s)
		}
		if !source || c.rule != nil && c.rule.kind == kindLock {
			continue
		}
		if written || !run.take(l, s) {
			checkLong(c, s, l, written)
		}
	}
	run.end(s)
}

func checkKey(l line, s *sink) {
	if m := privateKey.FindString(l.text); m != "" && !documented.MatchString(m) {
		s.add(kindKey, l.n, true, "it looks like a private key or a token, of %s", plural(len(m), "character"))
	}
}

func checkLong(c *change, s *sink, l line, written bool) {
	t := strings.TrimRight(l.text, " \t")
	if i := gapIn(t); i >= 0 {
		s.add(kindLongLine, l.n, true, "after a gap of blanks: %s", quote(t[i:]))
		return
	}
	if len(t) > longLine && !encodedImage(t) {
		switch why := ""; {
		case len(t) < 64<<10 && !written && c.ext() != ".html" && c.ext() != ".sql" && c.ext() != ".yml" && c.ext() != ".yaml":
			if why = suspicious(t); why != "" {
				s.add(kindLongLine, l.n, true, "%s, in a line of %s: %s", why, plural(len(t), "character"), quote(t))
				return
			}
			fallthrough
		default:
			s.add(kindLongLine, l.n, false, "a line of %s: %s", plural(len(t), "character"), quote(t))
		}
	}
}

// gapIn is where text goes on after a long run of blanks, or -1.
func gapIn(t string) int {
	if len(t) <= gap {
		return -1
	}
	n := 0
	for i := 0; i < len(t); i++ {
		switch t[i] {
		case ' ':
			n++
		case '\t':
			n += 8
		default:
			if n >= gap && strings.IndexFunc(t[i:], unicode.IsLetter) >= 0 && !strings.HasPrefix(t[i:], "//") && !strings.HasPrefix(t[i:], "*") {
				return i
			}
			n = 0
		}
	}
	return -1
}

// encodedImage is a picture or a font inside of a style sheet or a page.
func encodedImage(t string) bool {
	return strings.Contains(t, "data:image/") || strings.Contains(t, "data:font/") || strings.Contains(t, "data:application/font") || strings.Contains(t, "data:application/x-font")
}

var (
	encoded  = pattern.New(`[A-Za-z0-9+/_-]{256,}={0,2}`)
	encLine  = pattern.New(`^[\s"'` + "`" + `+.(]*([A-Za-z0-9+/=_-]{40,}|(\\x[0-9a-fA-F]{2}){10,}|((0x[0-9a-fA-F]{1,2}|[0-9]{1,3})\s*,\s*){8,}.*)(\\n)?["'` + "`" + `,;+)\\\s.]*$`)
	hexOnly  = pattern.New(`^[0-9a-fA-F]+$`)
	digitHas = pattern.New(`[0-9]`)
)

// blobRun joins lines of encoded data.
type blobRun struct {
	first, last, length int
	text                strings.Builder
}

// take looks at one line: encoded data in itself, or one more line of some.
func (b *blobRun) take(l line, s *sink) (told bool) {
	if len(l.text) >= blobLength && !encodedImage(l.text) {
		total := 0
		var part strings.Builder
		for _, m := range encoded.FindAllString(l.text, 64) {
			if digitHas.MatchString(m) {
				total += len(m)
				part.WriteString(m)
			}
		}
		if total >= blobLength {
			report(s, l.n, total, part.String())
			return gapIn(l.text) < 0
		}
		if n := strings.Count(l.text, `\x`) * 4; n >= blobLength {
			report(s, l.n, n, "")
			return gapIn(l.text) < 0
		}
		if n := strings.Count(l.text, ","); n >= blobLength/4 && strings.Trim(l.text, "0123456789abcdefxABCDEFX, \t[](){};=") == "" {
			report(s, l.n, n, "")
			return gapIn(l.text) < 0
		}
	}
	if len(l.text) >= blobWidth && mayEncode(l.text) && encLine.MatchString(l.text) && digitHas.MatchString(l.text) && strings.IndexByte(l.text, '-') < 0 {
		if b.length > 0 && l.n != b.last+1 {
			b.end(s)
		}
		if b.length == 0 {
			b.first = l.n
		}
		t := strings.Trim(l.text, " \t\"'`+,;().\\n")
		b.last = l.n
		b.length += len(t)
		if b.text.Len() < 4096 {
			b.text.WriteString(t)
		}
		return false
	}
	if b.length > 0 && l.n > b.last+1 {
		b.end(s)
	}
	return false
}

// mayEncode is what a line of encoded data has, and prose and code hardly ever.
func mayEncode(s string) bool {
	return strings.IndexByte(strings.Trim(s, " \t\"'`+.(;,)\\"), ' ') < 0 || strings.Count(s, ",") >= 8 || strings.Count(s, `\x`) >= 10
}

// end reports what was joined.
func (b *blobRun) end(s *sink) {
	if b.length >= blobLength {
		report(s, b.first, b.length, b.text.String())
	}
	*b = blobRun{}
}

// report says how long the data is and, when it is plain base64, what.
func report(s *sink, n, length int, part string) {
	what, grave := decoded(part)
	if what == "picture" || what == "certificate" {
		return
	}
	if what != "" {
		what = " of a " + what
	}
	s.add(kindBlob, n, grave, "%s of encoded data%s", bytesText(int64(length)), what)
}

// decoded says what the beginning of base64 or hex is.
func decoded(part string) (what string, grave bool) {
	part = strings.TrimRight(part, "=")
	if len(part) > 1024 {
		part = part[:1024]
	}
	var raw []byte
	if hexOnly.MatchString(part) {
		raw = unhex(part)
	} else {
		part = part[:len(part)/4*4]
		var err error
		if raw, err = base64.RawStdEncoding.DecodeString(strings.NewReplacer("-", "+", "_", "/").Replace(part)); err != nil {
			return "", false
		}
	}
	switch {
	case programKind(raw) != "":
		return "program (" + programKind(raw) + ")", true
	case bytes.HasPrefix(raw, []byte("\x1f\x8b")), bytes.HasPrefix(raw, []byte("PK\x03\x04")), bytes.HasPrefix(raw, []byte("\xfd7zXZ")), bytes.HasPrefix(raw, []byte("BZh")), bytes.HasPrefix(raw, []byte("\x28\xb5\x2f\xfd")):
		return "compressed file", true
	case picture(raw):
		return "picture", false
	case bytes.HasPrefix(raw, []byte("\x30\x82")):
		return "certificate", false
	case bytes.HasPrefix(raw, []byte("#!")) || suspicious(string(raw)) != "":
		return "script", true
	case bytes.Contains(raw, []byte("import ")) || bytes.Contains(raw, []byte("require(")):
		return "script", false
	}
	return "", false
}

func unhex(s string) []byte {
	out := make([]byte, 0, len(s)/2)
	value := func(c byte) byte {
		switch {
		case c >= 'a':
			return c - 'a' + 10
		case c >= 'A':
			return c - 'A' + 10
		}
		return c - '0'
	}
	for i := 0; i+1 < len(s); i += 2 {
		out = append(out, value(s[i])<<4|value(s[i+1]))
	}
	return out
}
