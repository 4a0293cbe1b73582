package surface

import (
	"fmt"
	"iter"
	"strings"
	"unicode"
	"unicode/utf8"
)

// hiddenClass is the kind of a character that does not show itself, or "".
func hiddenClass(r rune) string {
	switch {
	case r >= 0x202A && r <= 0x202E, r >= 0x2066 && r <= 0x2069:
		return kindBidi // CVE-2021-42574, "Trojan Source"
	case r >= 0x200B && r <= 0x200F, r >= 0x2060 && r <= 0x2065, r >= 0x206A && r <= 0x206F, r == 0xFEFF, r == 0x00AD, r == 0x034F, r == 0x061C,
		r == 0x115F, r == 0x1160, r == 0x3164, r == 0xFFA0, r == 0x17B4, r == 0x17B5, r >= 0x180B && r <= 0x180F,
		r == 0x2028, r == 0x2029, r >= 0xFE00 && r <= 0xFE0F, r >= 0xFFF0 && r <= 0xFFFB, r == 0x2800,
		r >= 0x1D173 && r <= 0x1D17A, r >= 0xE0000 && r <= 0xE0FFF:
		return kindInvisible
	case r < 0x20 && r != '\t' && r != '\n' && r != '\f', r >= 0x7F && r <= 0x9F:
		return kindControl
	}
	return ""
}

// hit is something hidden in a line.
type hit struct {
	kind, what string
	tags       bool // characters whose only use is to hide text
}

// scan looks for hidden characters and mixed words in a line. Code says that words of two scripts are odd in it.
func scan(s string, code bool) []hit {
	if plain(s) {
		return nil
	}
	var hits []hit
	seen := map[string]bool{}
	note := func(kind, what string, tags bool) {
		if !seen[kind] || tags {
			seen[kind] = true
			hits = append(hits, hit{kind, what, tags})
		}
	}
	rs := []rune(s)
	for i := 0; i < len(rs); i++ {
		r := rs[i]
		kind := hiddenClass(r)
		if kind == "" || r == '\r' && i == len(rs)-1 || r == 0xFFFD {
			continue
		}
		if n := flagSequence(rs[i:]); n > 0 && i > 0 && rs[i-1] == 0x1F3F4 {
			i += n - 1
			continue
		}
		if kind == kindInvisible && belongs(rs, i) {
			continue
		}
		what := fmt.Sprintf("U+%04X", r)
		if said := spoken(rs[i:]); said != "" {
			what += fmt.Sprintf(", which say %s", quote(said))
		}
		note(kind, what, tagged(r))
	}
	if code {
		for w := range words(s) {
			if odd := mixed(w); odd != 0 {
				note(kindHomoglyph, fmt.Sprintf("%s has U+%04X, which looks like a Latin letter", quote(w), odd), false)
			}
		}
	}
	return hits
}

// tagged are characters whose only use is to carry what is not shown.
func tagged(r rune) bool {
	return r >= 0xE0000 && r <= 0xE0FFF || r >= 0xFE00 && r <= 0xFE0D || r >= 0x2061 && r <= 0x2064 || r >= 0x206A && r <= 0x206F
}

// words are names and words of a line.
func words(s string) iter.Seq[string] {
	return strings.FieldsFuncSeq(s, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_' })
}

// plain is the fast way for almost every line.
func plain(s string) bool {
	for i := 0; i < len(s); i++ {
		if b := s[i]; b >= 0x7F || b < 0x20 && b != '\t' {
			return b == '\r' && i == len(s)-1
		}
	}
	return true
}

// flagSequence is the length of the tags of one of the three flags that exist.
func flagSequence(rs []rune) int {
	for _, name := range []string{"gbeng", "gbsct", "gbwls"} {
		n := 0
		for n < len(name) && n < len(rs) && rs[n] == 0xE0000+rune(name[n]) {
			n++
		}
		if n == len(name) && n < len(rs) && rs[n] == 0xE007F {
			return n + 1
		}
	}
	return 0
}

// spoken decodes letters hidden as tags or as variation selectors.
func spoken(rs []rune) string {
	var b []byte
	for _, r := range rs {
		switch {
		case r >= 0xE0020 && r <= 0xE007E:
			b = append(b, byte(r-0xE0000))
		case r >= 0xE0100 && r <= 0xE01EF:
			b = append(b, byte(r-0xE0100+16))
		case r >= 0xFE00 && r <= 0xFE0F:
			b = append(b, byte(r-0xFE00))
		default:
			if len(b) > 0 {
				return printable(b)
			}
			return ""
		}
	}
	return printable(b)
}

func printable(b []byte) string {
	for _, c := range b {
		if c < 0x20 || c > 0x7E {
			return ""
		}
	}
	if len(b) < 3 {
		return ""
	}
	return string(b)
}

// belongs reports whether an invisible character has its proper place: joiners in scripts that need them and in
// emoji, a variation selector behind what it varies.
func belongs(rs []rune, i int) bool {
	var before, after rune
	if i > 0 {
		before = rs[i-1]
	}
	if i+1 < len(rs) {
		after = rs[i+1]
	}
	switch r := rs[i]; {
	case r == 0xFE0E || r == 0xFE0F:
		return symbol(before)
	case r >= 0xFE00 && r <= 0xFE02 || r >= 0xE0100 && r <= 0xE01EF:
		return unicode.Is(unicode.Han, before) || r == 0xFE00 && unicode.Is(unicode.Sm, before)
	case r == 0x200D || r == 0x200C:
		return symbol(before) && symbol(after) || joins(before) && (joins(after) || !unicode.IsLetter(after))
	case r == 0x200E || r == 0x200F || r == 0x061C:
		return joins(before) || joins(after) || unicode.Is(unicode.Hebrew, before) || unicode.Is(unicode.Hebrew, after)
	case r >= 0x180B && r <= 0x180F:
		return unicode.Is(unicode.Mongolian, before)
	case r == 0x2800:
		return before >= 0x2800 && before <= 0x28FF || after >= 0x2800 && after <= 0x28FF // Braille, as in spinners
	case r == 0x00AD:
		return unicode.IsLetter(before) && before > 0x7F
	}
	return false
}

// symbol is what may carry a selector or a joiner: emoji, pictographs, keycaps.
func symbol(r rune) bool {
	return r >= 0x2000 && unicode.IsSymbol(r) || r == 0xFE0F || r == 0x200D || r >= '0' && r <= '9' || r == '#' || r == '*' || r == 0xA9 || r == 0xAE ||
		r == 0x2139 || r == 0x24C2 || r == 0x3297 || r == 0x3299 || r == 0x203C || r == 0x2049 || r >= 0x1F000 && r <= 0x1FAFF || r >= 0x2190 && r <= 0x2BFF || r == 0x3030 || r == 0x303D
}

// joins are scripts whose letters need joiners.
func joins(r rune) bool {
	return unicode.In(r, unicode.Arabic, unicode.Devanagari, unicode.Bengali, unicode.Gurmukhi, unicode.Gujarati, unicode.Oriya, unicode.Tamil, unicode.Telugu,
		unicode.Kannada, unicode.Malayalam, unicode.Sinhala, unicode.Khmer, unicode.Myanmar, unicode.Syriac, unicode.Thaana, unicode.Nko, unicode.Mongolian, unicode.Tibetan)
}

// lookalike maps letters of other scripts to the Latin ones that they look like (Unicode's confusables, the identical ones).
var lookalike = func() map[rune]rune {
	m := map[rune]rune{}
	pair := func(odd, latin string) {
		l := []rune(latin)
		for i, r := range []rune(odd) {
			m[r] = l[i]
		}
	}
	pair("абеорсухіјѕһԁԛԝвкмнтАВЕКМНОРСТУХІЈЅҺԌԚԜ", "a6eopcyxijshdqwBKMHTABEKMHOPCTYXIJSHGQW") // Cyrillic
	pair("οανιρυκΑΒΕΖΗΙΚΜΝΟΡΤΥΧϲϳ", "oavipukABEZHIKMNOPTYXcj")                                 // Greek
	pair("օսհոցքզԱՍՕ", "ouhngpqUUO")                                                           // Armenian
	pair("ᎪᏴᏟᎠᎬᏀᎻᎥᎫᏦᏞᎷᏢᏒᏚᎢᏙᎳᏃ", "ABCDEGHiJKLMPRSTVWZ")                                         // Cherokee
	pair("ɑɡıɩʏ", "agiiY")                                                                     // Latin, for other languages
	return m
}()

// mixed finds a letter that only looks Latin in a word with Latin letters. Words of one script, and letters that look like
// nothing Latin (µs, Δx), are as they should be.
func mixed(w string) rune {
	latin, odd := false, rune(0)
	for _, r := range w {
		switch {
		case r < utf8.RuneSelf && unicode.IsLetter(r):
			latin = true
		case r >= 0xFF21 && r <= 0xFF5A, r >= 0x1D400 && r <= 0x1D7FF:
			odd = r // full width, mathematical
		case lookalike[r] != 0:
			odd = r
		case unicode.IsLetter(r) && unicode.In(r, unicode.Cyrillic, unicode.Greek, unicode.Armenian, unicode.Cherokee):
			// A word that cannot be taken for a Latin one.
			return 0
		}
	}
	if latin && odd != 0 && odd != 'ı' {
		return odd
	}
	return 0
}

// checkHidden looks at new lines for what a reviewer does not see.
func checkHidden(c *change, s *sink) {
	code := sourceFile(c) || c.rule != nil
	c.diff()
	checkConflict(c, s)
	names := map[string]bool{}
	for _, l := range c.added {
		for _, h := range scan(l.text, code) {
			if code && h.kind == kindHomoglyph || h.kind != kindHomoglyph {
				grave := code || h.tags || h.kind == kindBidi && !translation(c)
				if h.kind == kindControl && dumpFile(c) {
					grave = false
				}
				s.add(h.kind, l.n, grave, "%s: %s", h.what, quote(l.text))
			}
		}
		if code && !plain(l.text) {
			wholeWords(c, s, l, names)
		}
	}
}

// checkConflict finds the markers that git leaves around the two sides of a conflict: all three, in their order.
func checkConflict(c *change, s *sink) {
	marks, at := []string{"<<<<<<< ", "=======", ">>>>>>> "}, 0
	next := 0
	for _, l := range c.added {
		text := strings.TrimSuffix(l.text, "\r")
		switch {
		case strings.HasPrefix(text, marks[0]):
			next, at = 1, l.n
		case next == 1 && text == marks[1]:
			next = 2
		case next == 2 && strings.HasPrefix(text, marks[2]):
			s.add(kindConflict, at, true, "the markers of a conflict that was not resolved")
			next = 0
		}
	}
}

// wholeWords finds words that are lookalikes from first to last letter, of a word that the file also has.
func wholeWords(c *change, s *sink, l line, names map[string]bool) {
	for w := range words(l.text) {
		var b strings.Builder
		all, some := true, false
		for _, r := range w {
			as := lookalike[r]
			all = all && (as != 0 || r == '_' || unicode.IsDigit(r))
			some = some || as != 0
			if as == 0 {
				as = r
			}
			b.WriteRune(as)
		}
		if n := utf8.RuneCountInString(w); !all || !some || n < 3 || n > 32 {
			continue
		}
		if len(names) == 0 {
			names[""] = true // made once
			for n := range strings.FieldsFuncSeq(c.new, func(r rune) bool { return r > 0x7F || !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_' }) {
				names[n] = true
			}
		}
		if names[b.String()] {
			s.add(kindHomoglyph, l.n, true, "%s looks like %s, which is another word: %s", quote(w), quote(b.String()), quote(l.text))
		}
	}
}

// translation files hold text in scripts that run from right to left.
func translation(c *change) bool {
	for _, d := range []string{"locale", "locales", "i18n", "l10n", "lang", "translations", "languages", "intl"} {
		if strings.Contains("/"+c.lower, "/"+d+"/") {
			return !sourceFile(c)
		}
	}
	return c.ext() == ".po" || c.ext() == ".xlf" || c.ext() == ".strings" || c.ext() == ".arb"
}

// dumpFile holds the output of programs.
func dumpFile(c *change) bool {
	switch c.ext() {
	case ".snap", ".golden", ".ans", ".out", ".log", ".stdout", ".stderr", ".cast", ".txt", ".expected", ".approved":
		return true
	}
	return false
}
