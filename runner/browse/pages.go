package browse

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// CompareAll compares the pictures of both sides and writes a picture of each difference next to them.
func (b *Browser) CompareAll(ctx context.Context, pages []workorder.PageProof) error {
	var errs []error
	for i := range pages {
		p := &pages[i]
		if p.Base == nil || p.Head == nil || p.Base.Picture == "" || p.Head.Picture == "" {
			continue
		}
		if err := ctx.Err(); err != nil {
			errs = append(errs, fmt.Errorf("pictures were not compared: %w", context.Cause(ctx)))
			break
		}
		if err := b.compare(p); err != nil {
			errs = append(errs, fmt.Errorf("the pictures of %s at %d px were not compared: %w", p.Path, p.Width, err))
		}
	}
	return errors.Join(errs...)
}

func (b *Browser) compare(p *workorder.PageProof) error {
	base, err := os.ReadFile(filepath.Join(b.OutDir, filepath.FromSlash(p.Base.Picture)))
	if err != nil {
		return err
	}
	head, err := os.ReadFile(filepath.Join(b.OutDir, filepath.FromSlash(p.Head.Picture)))
	if err != nil {
		return err
	}
	share, marked, err := Compare(base, head)
	if err != nil {
		return err
	}
	p.Differs = &share
	if marked == nil {
		return nil
	}
	name := strings.TrimSuffix(p.Head.Picture, "-head.png") + "-diff.png"
	if err := b.put(name, marked); err != nil {
		return err
	}
	p.Diff = name
	return nil
}

// Evidence lists the pictures and the video, if its path is not empty.
func Evidence(pages []workorder.PageProof, video string) []workorder.Evidence {
	var all []workorder.Evidence
	add := func(kind, name, path string) {
		if path != "" {
			all = append(all, workorder.Evidence{Name: name, Path: path, Kind: kind})
		}
	}
	for _, p := range pages {
		title := fmt.Sprintf("%s at %d px", p.Path, p.Width)
		if p.Base != nil {
			add(workorder.EvidenceScreenshot, title+", before", p.Base.Picture)
		}
		if p.Head != nil {
			add(workorder.EvidenceScreenshot, title+", after", p.Head.Picture)
		}
		add(workorder.EvidenceScreenshot, title+", differences", p.Diff)
	}
	add(workorder.EvidenceVideo, "A walk over the pages, after", video)
	return all
}
