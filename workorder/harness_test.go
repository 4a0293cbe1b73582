package workorder

import (
	"slices"
	"testing"
)

func TestHarnessAPIs(t *testing.T) {
	names := Harnesses()
	if !slices.Contains(names, HarnessCommand) || len(slices.Compact(slices.Sorted(slices.Values(names)))) != len(names) {
		t.Errorf("%q", names)
	}
	for _, name := range names {
		if apis := (Harness{Name: name}).APIs(); (len(apis) == 0) != (name == HarnessCommand) {
			t.Errorf("%s works with %q", name, apis)
		}
	}
	if apis := (Harness{Name: "none"}).APIs(); apis != nil {
		t.Errorf("one that is not known works with %q", apis)
	}
	(Harness{Name: HarnessCodex}).APIs()[0] = APIAnthropic
	if apis := (Harness{Name: HarnessCodex}).APIs(); !slices.Equal(apis, []ModelAPI{APIOpenAI}) {
		t.Errorf("the table changed: %q", apis)
	}
}
