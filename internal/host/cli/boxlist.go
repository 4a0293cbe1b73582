package cli

import (
	"context"
	"maps"

	"github.com/sandbox-agent/sandbox-agent/internal/host/engine"
	"github.com/sandbox-agent/sandbox-agent/internal/host/store"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// ownBoxes lists the engine's boxes of a state folder, those of older versions included.
func ownBoxes(ctx context.Context, e engine.Engine, st *store.Store, labels map[string]string) (boxes []engine.Box, err error) {
	own, err := st.Owner(false)
	if err != nil {
		return nil, err
	}
	for _, label := range own.Labels() {
		with := map[string]string{workorder.LabelOwner: label}
		maps.Copy(with, labels)
		list, err := e.Boxes(ctx, with)
		if err != nil {
			return nil, err
		}
		boxes = append(boxes, list...)
	}
	return boxes, nil
}
