package provision

import (
	"context"
	"fmt"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/image"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// npmDefault is the registry that npm uses by itself.
const npmDefault = "https://registry.npmjs.org"

// released returns the smallest image of the program's release that has one of the sets of parts; a zero Image if there is none or its
// registry does not answer.
func released(
	ctx context.Context, engine Engine, o Options, src *image.Source, sets [][]string, arch string,
) (workorder.Image, error) {
	list := o.releases
	if list.Repository == "" {
		var err error
		if list, err = image.Released(); err != nil || list.Repository == "" {
			return workorder.Image{}, err
		}
	}
	for _, set := range sets {
		src := src.With(set)
		hash, err := src.Hash()
		if err != nil {
			return workorder.Image{}, err
		}
		ref := list.Reference(hash)
		if ref == "" {
			continue
		}
		name := o.repository + ":" + tag(o.Version, hash)
		b := builder{engine: engine, src: src, name: name, hash: hash, arch: arch, o: o}
		if err := b.adopt(ctx, ref); err != nil {
			if ctx.Err() != nil {
				return workorder.Image{}, err
			}
			b.warn("%s: %v; building the image instead", ref, err)
			return workorder.Image{}, nil
		}
		return inspect(ctx, engine, name)
	}
	return workorder.Image{}, nil
}

// adopt pulls a released image and gives it the builder's name, with the host's certificates and registry.
func (b *builder) adopt(ctx context.Context, ref string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, buildDeadline, fmt.Errorf("image not pulled within %s", buildDeadline))
	defer cancel()
	if err := b.pull(ctx, ref); err != nil {
		return err
	}
	host := readHost(ctx)
	if strings.TrimSuffix(host.registry, "/") == npmDefault {
		host.registry = ""
	}
	if len(host.cas) == 0 && host.registry == "" {
		return b.engine.ImageTag(ctx, ref, b.name)
	}
	adapter, err := image.Adapter()
	if err != nil {
		return err
	}
	return b.build(ctx, adapter, ref, host)
}
