package projects

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/sandbox-agent/sandbox-agent/internal/diag"
)

// longestDuration bounds durations: a year is longer than any run.
const longestDuration = 365 * 24 * time.Hour

// plainTags are the tags a scalar may have; others ask for types there are none of.
var plainTags = []string{"!!str", "!!int", "!!float", "!!bool", "!!null", "!!timestamp", "!!merge"}

// scalar decodes a single value by its kind.
func (d *decoder) scalar(v *value, n, at *yaml.Node) bool {
	s := v.schema
	if n.Kind != yaml.ScalarNode {
		return d.wrongType(v, n)
	}
	if t := n.ShortTag(); !slices.Contains(plainTags, t) {
		d.report(n, codeType, "remove the tag", "%s has the tag %s, which means nothing here", v.path, t)
		return false
	}
	v.text = n.Value
	if !s.allowEmpty && (isNull(n) || strings.TrimSpace(v.text) == "") {
		d.report(at, codeValue, "", "%s is empty, it must be %s", v.path, s.want())
		return false
	}
	switch s.kind {
	case text:
		return d.text(v, n)
	case boolean:
		return d.boolean(v, n)
	case number, integer:
		return d.number(v, n)
	case duration:
		return d.measure(v, n, parseDuration, "2s, 5m or a number of seconds")
	case size:
		return d.measure(v, n, ParseSize, "512m, 1.5g or a number of bytes")
	}
	return false
}

func (d *decoder) text(v *value, n *yaml.Node) bool {
	s := v.schema
	switch {
	case strings.ContainsRune(v.text, 0):
		d.report(n, codeValue, "", "%s holds a NUL byte", v.path)
	case token.MatchString(v.text) && !reference.MatchString(v.text) && !strings.HasPrefix(v.path, inSecrets):
		d.src.hide(v.text)
		d.report(n, codeSecret, "put it under `secrets:` as a reference, such as NAME: env://NAME, and withdraw the value: it stood in a file",
			"%s looks like a secret key or token", v.path)
	case len(s.enum) > 0 && !slices.Contains(s.enum, v.text):
		hint := "use " + strings.Join(s.enum, " or ")
		if near := diag.Nearest(v.text, s.enum); near != "" {
			hint = fmt.Sprintf("did you mean %q?", near)
		} else if strings.HasPrefix(v.path, inSecrets) {
			d.src.hide(v.text) // it may be a value in the wrong place
		}
		d.report(n, codeValue, hint, "%s %q is not known", v.path, v.text)
	case s.pattern != nil && !s.pattern.MatchString(v.text):
		d.report(n, codeValue, "use "+s.rule, "%s %q is not valid", v.path, v.text)
	default:
		return true
	}
	return false
}

func (d *decoder) boolean(v *value, n *yaml.Node) bool {
	if n.ShortTag() == "!!bool" {
		v.on = strings.EqualFold(v.text, "true")
		v.text = strconv.FormatBool(v.on)
		return true
	}
	hint := "write true or false"
	switch strings.ToLower(v.text) {
	case "yes", "on", "y", "true":
		hint = "write true, without quotes"
	case "no", "off", "n", "false":
		hint = "write false, without quotes"
	}
	d.report(n, codeType, hint, "%s must be true or false, it is %q", v.path, v.text)
	return false
}

// plainNumber leaves out what readers of YAML disagree on: octal, hexadecimal,
// underscores, infinity.
var plainNumber = regexp.MustCompile(`^[+-]?(0|[1-9][0-9]*)?(\.[0-9]*)?([eE][+-]?[0-9]{1,3})?$`)

func (d *decoder) number(v *value, n *yaml.Node) bool {
	s := v.schema
	f, err := strconv.ParseFloat(v.text, 64)
	switch {
	case err != nil || !plainNumber.MatchString(v.text) || math.IsInf(f, 0):
		d.report(n, codeType, "write digits, such as 2 or 0.5", "%s must be %s, it is %q", v.path, s.want(), v.text)
	case f < 0 && s.zero:
		d.report(n, codeValue, "", "%s must not be less than 0, it is %s", v.path, v.text)
	case f <= 0 && !s.zero:
		d.report(n, codeValue, "", "%s must be more than 0, it is %s", v.path, v.text)
	case s.kind == integer && f != math.Trunc(f):
		d.report(n, codeValue, "", "%s must be a whole number, it is %s", v.path, v.text)
	case f > s.limit():
		d.report(n, codeValue, "", "%s is too large, the limit is %.0f", v.path, s.limit())
	default:
		v.num = f
		return true
	}
	return false
}

// limit is the largest number the schema allows.
func (s *schema) limit() float64 {
	switch {
	case s.max > 0:
		return s.max
	case s.kind == integer:
		return math.MaxInt32
	}
	return math.MaxFloat32
}

func (d *decoder) measure(v *value, n *yaml.Node, parse func(string) (float64, bool), forms string) bool {
	f, ok := parse(v.text)
	if !ok {
		d.report(n, codeValue, "write "+forms, "%s %q is not %s, or is out of range", v.path, v.text, v.schema.want())
		return false
	}
	v.num = f
	return true
}

// parseDuration returns seconds.
func parseDuration(t string) (float64, bool) {
	if plainNumber.MatchString(t) {
		f, err := strconv.ParseFloat(t, 64)
		return f, err == nil && f > 0 && f <= longestDuration.Seconds()
	}
	dur, err := time.ParseDuration(t)
	return dur.Seconds(), err == nil && dur > 0 && dur <= longestDuration
}

var sizeForm = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)(?:([kmgt])i?b?|b)?$`)

// largestSize keeps sizes exact in a float64 and far from overflow.
const largestSize = 1 << 50

// ParseSize returns the bytes of a text like 512m or 1.5g. Units are powers of 1024, as the engine has them.
func ParseSize(t string) (float64, bool) {
	m := sizeForm.FindStringSubmatch(strings.ToLower(t))
	if m == nil {
		return 0, false
	}
	f, err := strconv.ParseFloat(m[1], 64)
	f = math.Floor(f * map[string]float64{"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}[m[2]])
	return f, err == nil && f >= 1 && f <= largestSize
}
