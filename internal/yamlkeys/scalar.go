package yamlkeys

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/sandbox-agent/sandbox-agent/internal/diag"
	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
)

const longestDuration = 365 * 24 * time.Hour

// plainTags are the allowed tags of a scalar.
var plainTags = []string{"!!str", "!!int", "!!float", "!!bool", "!!null", "!!timestamp", "!!merge"}

func (d *Decoder) scalar(v *Value, n, at *yaml.Node) bool {
	s := v.Schema
	if n.Kind != yaml.ScalarNode {
		return d.wrongType(v, n)
	}
	if t := n.ShortTag(); !slices.Contains(plainTags, t) {
		d.Report(n, CodeType, "remove the tag", "%s has the tag %s, which means nothing here", v.Path, t)
		return false
	}
	v.Text = n.Value
	if !s.AllowEmpty && (IsNull(n) || strings.TrimSpace(v.Text) == "") {
		d.Report(at, CodeValue, "", "%s is empty, it must be %s", v.Path, s.want())
		return false
	}
	switch s.Kind {
	case Text:
		return d.text(v, n)
	case Boolean:
		return d.boolean(v, n)
	case Number, Integer:
		return d.number(v, n)
	case Duration:
		return d.measure(v, n, parseDuration, "2s, 5m or a number of seconds")
	case Size:
		return d.measure(v, n, ParseSize, "512m, 1.5g or a number of bytes")
	}
	return false
}

func (d *Decoder) text(v *Value, n *yaml.Node) bool {
	s := v.Schema
	_, secrets := d.root.Find("secrets") // a file without the key has no other place for a value
	switch {
	case strings.ContainsRune(v.Text, 0):
		d.Report(n, CodeValue, "", "%s holds a NUL byte", v.Path)
	case secrets && token.MatchString(v.Text) && !reference.MatchString(v.Text) && !strings.HasPrefix(v.Path, InSecrets):
		d.src.hide(v.Text)
		d.Report(n, CodeSecret, "put it under `secrets:` as a reference, such as NAME: env://NAME, and revoke the value: it was in a file",
			"%s looks like a secret key or token", v.Path)
	case len(s.Enum) > 0 && !slices.Contains(s.Enum, v.Text):
		hint := "use " + strings.Join(s.Enum, " or ")
		if near := diag.Nearest(v.Text, s.Enum); near != "" {
			hint = fmt.Sprintf("did you mean %q?", near)
		} else if strings.HasPrefix(v.Path, InSecrets) {
			d.src.hide(v.Text) // it may be a value in the wrong place
		}
		d.Report(n, CodeValue, hint, "%s %q is not known", v.Path, v.Text)
	case s.Pattern != nil && !s.Pattern.MatchString(v.Text):
		d.Report(n, CodeValue, "use "+s.Rule, "%s %q is not valid", v.Path, v.Text)
	default:
		return true
	}
	return false
}

func (d *Decoder) boolean(v *Value, n *yaml.Node) bool {
	if n.ShortTag() == "!!bool" {
		v.On = strings.EqualFold(v.Text, "true")
		v.Text = strconv.FormatBool(v.On)
		return true
	}
	hint := "write true or false"
	switch strings.ToLower(v.Text) {
	case "yes", "on", "y", "true":
		hint = "write true, without quotes"
	case "no", "off", "n", "false":
		hint = "write false, without quotes"
	}
	d.Report(n, CodeType, hint, "%s must be true or false, it is %q", v.Path, v.Text)
	return false
}

// plainNumber excludes octal, hexadecimal, underscores and infinity, on which YAML readers differ.
var plainNumber = lazyregexp.New(`^[+-]?(0|[1-9][0-9]*)?(\.[0-9]*)?([eE][+-]?[0-9]{1,3})?$`)

func (d *Decoder) number(v *Value, n *yaml.Node) bool {
	s := v.Schema
	f, err := strconv.ParseFloat(v.Text, 64)
	switch {
	case err != nil || !plainNumber.MatchString(v.Text) || math.IsInf(f, 0):
		d.Report(n, CodeType, "write digits, such as 2 or 0.5", "%s must be %s, it is %q", v.Path, s.want(), v.Text)
	case f < 0 && s.Zero:
		d.Report(n, CodeValue, "", "%s must not be less than 0, it is %s", v.Path, v.Text)
	case f <= 0 && !s.Zero:
		d.Report(n, CodeValue, "", "%s must be more than 0, it is %s", v.Path, v.Text)
	case s.Kind == Integer && f != math.Trunc(f):
		d.Report(n, CodeValue, "", "%s must be a whole number, it is %s", v.Path, v.Text)
	case f > s.limit():
		d.Report(n, CodeValue, "", "%s is too large, the limit is %.0f", v.Path, s.limit())
	default:
		v.Num = f
		return true
	}
	return false
}

func (s *Schema) limit() float64 {
	switch {
	case s.Max > 0:
		return s.Max
	case s.Kind == Integer:
		return math.MaxInt32
	}
	return math.MaxFloat32
}

func (d *Decoder) measure(v *Value, n *yaml.Node, parse func(string) (float64, bool), forms string) bool {
	f, ok := parse(v.Text)
	if !ok {
		d.Report(n, CodeValue, "write "+forms, "%s %q is not %s, or is out of range", v.Path, v.Text, v.Schema.want())
		return false
	}
	v.Num = f
	return true
}

func parseDuration(t string) (float64, bool) {
	if plainNumber.MatchString(t) {
		f, err := strconv.ParseFloat(t, 64)
		return f, err == nil && f > 0 && f <= longestDuration.Seconds()
	}
	dur, err := time.ParseDuration(t)
	return dur.Seconds(), err == nil && dur > 0 && dur <= longestDuration
}

var sizeForm = lazyregexp.New(`^([0-9]+(?:\.[0-9]+)?)(?:([kmgt])i?b?|b)?$`)

// largestSize keeps sizes exact in a float64.
const largestSize = 1 << 50

// ParseSize returns the bytes of a text like 512m or 1.5g, in powers of 1024.
func ParseSize(t string) (float64, bool) {
	m := sizeForm.FindStringSubmatch(strings.ToLower(t))
	if m == nil {
		return 0, false
	}
	f, err := strconv.ParseFloat(m[1], 64)
	f = math.Floor(f * map[string]float64{"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}[m[2]])
	return f, err == nil && f >= 1 && f <= largestSize
}
