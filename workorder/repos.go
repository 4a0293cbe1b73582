package workorder

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
)

// ReposDir is the directory of the output with the files of further repositories, by name.
const ReposDir = "repos"

// OrderRepo is a further repository of a task: its work is landed on a branch of its own, like that of Order.Repo.
type OrderRepo struct {
	// Name is the directory below Workspace.
	Name     string `json:"name"`
	Repo     string `json:"repo"`      // as Order.Repo
	CloneURL string `json:"clone_url"` // as Order.CloneURL
	Branch   string `json:"branch"`    // as Order.Branch
	// Repository is owner/name on the forge if it differs from the remote's path, as PullRequest.Repository.
	Repository string `json:"repository,omitempty"`
	// Bundle and Archive report that FileIn of BundleIn and ArchiveIn has what Order.Bundle and Order.Archive are about.
	Bundle  bool `json:"bundle,omitempty"`
	Archive bool `json:"archive,omitempty"`
}

// FileIn returns the path of BundleIn or ArchiveIn for a further repository, or for Order.Repo if repo is empty.
func FileIn(path, repo string) string {
	if repo == "" {
		return path
	}
	return path + "." + repo
}

// Dir is the repository's work tree.
func (r *OrderRepo) Dir() string { return path.Join(Workspace, r.Name) }

// RepoResult is the outcome of a task in a further repository.
type RepoResult struct {
	Name       string   `json:"name"`
	Repo       string   `json:"repo"`
	BaseBranch string   `json:"base_branch"`
	BaseSHA    string   `json:"base_sha"`
	Branch     string   `json:"branch"` // empty when nothing was pushed
	HeadSHA    string   `json:"head_sha"`
	Pushed     bool     `json:"pushed"`
	Commits    []Commit `json:"commits"`
	PR         *PR      `json:"pr"`
}

// MaxRepos is the limit of Order.Repos: each is cloned, saved and pushed by itself.
const MaxRepos = 16

var repoName = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// ValidRepoName reports whether a further repository can have the name.
func ValidRepoName(s string) bool { return repoName.MatchString(s) && !strings.HasSuffix(s, ".git") }

// ForRepo returns the task's order for one of Repos. The order for Order.Repo alone decides whether the task may begin,
// so this one takes the repository's state as it is.
func (o *Order) ForRepo(r *OrderRepo) *Order {
	c := *o
	c.Repo, c.CloneURL, c.Branch, c.Repos = r.Repo, r.CloneURL, r.Branch, nil
	c.Bundle, c.Archive, c.Review, c.Rebase = r.Bundle, r.Archive, nil, nil
	if c.Mode != ModePlan {
		c.Mode = ModeCreate
	}
	c.IfExists = IfExistsContinue
	if o.PR != nil {
		pr := *o.PR
		pr.Repository, pr.Base = r.Repository, ""
		c.PR = &pr
	}
	return &c
}

// Served returns the order with a clone URL for each repository on the host, whose own one is known only when it is served.
func (o *Order) Served() *Order {
	c := *o
	c.CloneURL = cmp.Or(c.CloneURL, o.Repo)
	c.Repos = slices.Clone(o.Repos)
	for i := range c.Repos {
		c.Repos[i].CloneURL = cmp.Or(c.Repos[i].CloneURL, c.Repos[i].Repo)
	}
	return &c
}

// ForRepo returns the envelope for one of the order's repositories.
func (e *Envelope) ForRepo(r *OrderRepo) *Envelope {
	c := *e
	c.Order, c.Git, c.RepoGit = *e.Order.ForRepo(r), e.RepoGit[r.Name], nil
	return &c
}

// ForRepo returns the task's result in one of its further repositories: what the checks say is about all of them.
func (r *Result) ForRepo(of *RepoResult) *Result {
	c := *r
	c.Repo, c.BaseBranch, c.BaseSHA, c.Branch, c.HeadSHA = of.Repo, of.BaseBranch, of.BaseSHA, of.Branch, of.HeadSHA
	c.Pushed, c.Commits, c.PR = of.Pushed, of.Commits, of.PR
	c.Changes, c.Checkpoint, c.Restored, c.Proof, c.Surface, c.EvidenceSHA = nil, nil, nil, nil, nil, ""
	c.Repos = []RepoResult{{
		Repo: r.Repo, BaseBranch: r.BaseBranch, BaseSHA: r.BaseSHA, Branch: r.Branch, HeadSHA: r.HeadSHA, Pushed: r.Pushed,
		Commits: r.Commits, PR: r.PR,
	}}
	for i := range r.Repos {
		if r.Repos[i].Name != of.Name {
			c.Repos = append(c.Repos, r.Repos[i])
		}
	}
	return &c
}

func (o *Order) checkRepos(p *problems) {
	p.require(len(o.Repos) == 0 || o.Repo != "",
		"repos needs repo, the repository of the task itself: add `repo: .` to the project file, or give --repo")
	p.require(len(o.Repos) <= MaxRepos, "repos has %d repositories, the limit is %d", len(o.Repos), MaxRepos)
	seen := map[string]bool{}
	for i := range o.Repos {
		r := &o.Repos[i]
		p.require(ValidRepoName(r.Name), "repos: the name %q is not letters, digits, dot, dash and _, at most 63", r.Name)
		p.require(!seen[r.Name], "repos: two have the name %s", r.Name)
		p.require(!seen[r.Repo], "repos.%s: %s is cloned twice", r.Name, r.Repo)
		seen[r.Name], seen[r.Repo] = true, true
		p.require(r.Repo != "" && r.CloneURL != "", "repos.%s: repo and clone_url are both needed", r.Name)
		p.require(r.Repo != o.Repo, "repos.%s is the task's own repository", r.Name)
		p.require(r.Branch == "" || ValidRefName(r.Branch), "repos.%s: branch %q is not a valid branch name", r.Name, r.Branch)
		p.require(r.Branch == "" || r.Branch != o.TargetBranch,
			"repos.%s: branch and target_branch are both %q: the base branch is never written", r.Name,
			r.Branch)
	}
}
