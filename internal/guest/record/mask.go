package record

import (
	"reflect"
	"slices"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Masker removes secrets from text.
type Masker interface{ String(s string) string }

// maskResult removes the secrets from every text of the result, whatever its source. Strings of other types are the
// product's own words.
func maskResult(res *workorder.Result, m Masker) {
	if m != nil {
		maskValue(reflect.ValueOf(res).Elem(), m,
			[]string{"TaskID", "BaseSHA", "HeadSHA", "SHA", "Log", "Evidence.Path", "PageProof.Path"})
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
	case reflect.Map:
		for _, key := range v.MapKeys() {
			maskValue(v.MapIndex(key), m, plain)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if own := v.Type().Name() + "." + f.Name; f.IsExported() && !slices.Contains(plain, f.Name) && !slices.Contains(plain, own) {
				maskValue(v.Field(i), m, plain)
			}
		}
	}
}
