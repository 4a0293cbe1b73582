package pullrequest

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// Opener opens or updates one pull request. why is the reason if it did not try.
type Opener func(ctx context.Context, o *workorder.Order, r *workorder.Result) (pr *workorder.PR, why string, warnings []string, err error)

// OpenAll calls open for the task's repository and for each further one with commits. The result's Repos get their pull
// requests; the answer is about the task's own repository. The bodies name the other pull requests, so those that are
// opened first are written again.
func OpenAll(ctx context.Context, o *workorder.Order, r *workorder.Result, open Opener) (
	pr *workorder.PR, why string, warnings []string, err error,
) {
	said := openOthers(ctx, o, r, open)
	known := r.PR
	pr, why, warnings, err = open(ctx, o, r)
	if pr != nil && (known == nil || known.Number != pr.Number) {
		r.PR = pr
		said = openOthers(ctx, o, r, open)
	}
	return pr, why, append(warnings, said...), err
}

func openOthers(ctx context.Context, o *workorder.Order, r *workorder.Result, open Opener) (warnings []string) {
	for i := range o.Repos {
		more, err := openFurther(ctx, o, r, &o.Repos[i], open)
		warnings = append(warnings, more...)
		if err != nil {
			warnings = append(warnings, fmt.Sprintf("%s: no pull request: %v", o.Repos[i].Name, err))
		}
	}
	return warnings
}

func openFurther(
	ctx context.Context, o *workorder.Order, r *workorder.Result, of *workorder.OrderRepo, open Opener,
) (warnings []string, err error) {
	at := slices.IndexFunc(r.Repos, func(is workorder.RepoResult) bool { return is.Name == of.Name })
	if at < 0 {
		return nil, nil
	}
	is, order := &r.Repos[at], o.ForRepo(of)
	result := r.ForRepo(is)
	if SkipReason(order, result) != "" {
		return nil, nil
	}
	if !sameForge(o, of) {
		return nil, fmt.Errorf("%s is not on the forge of the task's repository, whose token it does not get: open it there", of.Repo)
	}
	pr, why, more, err := open(ctx, order, result)
	is.PR = cmp.Or(pr, is.PR)
	if why != "" {
		more = append(more, "no pull request: "+why)
	}
	for _, m := range more {
		warnings = append(warnings, of.Name+": "+m)
	}
	return warnings, err
}

// sameForge reports whether the forge and token of the task's repository are those of a further one.
func sameForge(o *workorder.Order, of *workorder.OrderRepo) bool {
	if of.Repository != "" && o.PR.APIURL != "" {
		return true
	}
	host := workorder.HostOf(of.Repo)
	return host != "" && host == workorder.HostOf(o.Repo)
}
