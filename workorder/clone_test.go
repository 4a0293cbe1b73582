package workorder

import (
	"reflect"
	"testing"
	"time"
)

// fill puts something into every field, list, map and pointer.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	case reflect.Float64:
		v.SetFloat(1)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		k, e := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(k)
		fill(e)
		v.SetMapIndex(k, e)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(1700000000, 0).UTC()))
			return
		}
		for _, f := range v.Fields() {
			fill(f)
		}
	}
}

// shared names what two values have in common in memory.
func shared(t *testing.T, path string, a, b reflect.Value) {
	t.Helper()
	switch a.Kind() {
	case reflect.Pointer:
		if a.Pointer() == b.Pointer() {
			t.Errorf("%s is shared", path)
		}
		shared(t, path, a.Elem(), b.Elem())
	case reflect.Slice:
		if a.Len() == 0 || a.Pointer() == b.Pointer() {
			t.Errorf("%s is shared, or empty", path)
			return
		}
		shared(t, path+"[]", a.Index(0), b.Index(0))
	case reflect.Map:
		if a.Len() == 0 || a.Pointer() == b.Pointer() {
			t.Errorf("%s is shared, or empty", path)
			return
		}
		k := a.MapKeys()[0]
		shared(t, path+"{}", a.MapIndex(k), b.MapIndex(k))
	case reflect.Struct:
		if a.Type() == reflect.TypeFor[time.Time]() {
			return
		}
		for i := range a.NumField() {
			shared(t, path+"."+a.Type().Field(i).Name, a.Field(i), b.Field(i))
		}
	}
}

func TestClone(t *testing.T) {
	t.Parallel()
	var r Result
	fill(reflect.ValueOf(&r).Elem())
	c := r.Clone()
	if !reflect.DeepEqual(r, c) {
		t.Errorf("the copy differs:\n%+v\n%+v", r, c)
	}
	shared(t, "Result", reflect.ValueOf(r), reflect.ValueOf(c))
	if z := new(Result).Clone(); !reflect.DeepEqual(z, Result{}) {
		t.Errorf("of nothing: %+v", z)
	}
}
