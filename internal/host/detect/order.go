package detect

import (
	"maps"
	"slices"
)

// sortedKeys are the keys of a map in an order that does not change.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
