package record

import (
	"reflect"
	"slices"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Masker removes secrets from text.
type Masker interface{ String(s string) string }

// plainFields hold what programs read and we made: a value that occurs there by
// chance would only make the result useless.
func plainFields() []string {
	return []string{"TaskID", "BaseSHA", "HeadSHA", "SHA", "Log", "Path"}
}

// maskResult takes the secrets out of every text of the result, whoever put it
// there: commit subjects, a service's output, warnings of the landing. Strings of a
// type of their own are words of ours, such as a status.
func maskResult(res *workorder.Result, m Masker) {
	if m != nil {
		maskValue(reflect.ValueOf(res).Elem(), m, plainFields())
	}
}

func maskValue(v reflect.Value, m Masker, plain []string) {
	switch v.Kind() {
	case reflect.String:
		if v.CanSet() && v.Type() == reflect.TypeFor[string]() {
			v.SetString(m.String(v.String()))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			maskValue(v.Elem(), m, plain)
		}
	case reflect.Slice:
		for i := range v.Len() {
			maskValue(v.Index(i), m, plain)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && !slices.Contains(plain, f.Name) {
				maskValue(v.Field(i), m, plain)
			}
		}
	}
}
