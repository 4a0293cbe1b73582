package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/distribution/reference"
	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/host/cachebox"
	"github.com/sandbox-agent/sandbox-agent/internal/host/fault"
	"github.com/sandbox-agent/sandbox-agent/internal/host/resolve"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/projects"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// cacheAge is the default age at which an image without a project is removed: a project
// that was worked on within a month still starts warm.
const cacheAge = "30d"

type cacheOptions struct {
	image, isolation, ociRuntime string
	project, projectsDir         string
	olderThan                    string
	all, dryRun, json            bool
	sources                      map[string]string
}

func newCacheCmd(a *App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "cache", Short: "Manage the cache that sandboxes share", Args: noArgs,
		Long: `Sandboxes of one engine share image layers, so that each image is pulled once,
and the outcome of a project's setup, so that it runs once for the same
dependencies. These commands list, fill and prune that cache. Each starts a small
sandbox for its work and removes it. All are safe while tasks run. 'gc --cache'
removes the whole cache.`,
		Example: "  sandbox-agent cache ls\n  sandbox-agent cache pull --project my-app\n  sandbox-agent cache prune --older-than 7d",
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newCacheLsCmd(a), newCachePruneCmd(a), newCacheLoadCmd(a), newCachePullCmd(a))
	return cmd
}

// cacheFlags are the flags of all cache commands, and those that shape the cache's box.
func (o *cacheOptions) cacheFlags(a *App, cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&o.json, "json", false, "print JSON")
	f.StringVar(&o.image, "image", "", "image of the sandbox (default: built by this program)")
	f.StringVar(&o.isolation, "isolation", "", "isolation of the sandbox: confined or privileged")
	f.StringVar(&o.ociRuntime, "oci-runtime", "", "OCI runtime of the engine")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) (err error) {
		o.sources, err = fromEnvironment(cmd.Flags(), a.Getenv, settings()...)
		return err
	}
	a.completeFlags(cmd)
}

func newCacheLsCmd(a *App) *cobra.Command {
	o := &cacheOptions{}
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the content of the cache", Args: noArgs,
		Long: `Lists outcomes of setup, and the images in the layer cache. OWN is the size of
layers that no other image has, SHARED that of the others. USED is when a task
last used the image.`,
		Example: "  sandbox-agent cache ls\n  sandbox-agent cache ls --json",
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.ls(cmd.Context(), a) },
	}
	o.cacheFlags(a, cmd)
	return cmd
}

func newCachePruneCmd(a *App) *cobra.Command {
	o := &cacheOptions{}
	cmd := &cobra.Command{
		Use: "prune", Short: "Remove unused entries from the cache", Args: noArgs,
		Long: `Removes images and outcomes of setup that no task has used for --older-than, and
layers that no image needs. Entries in use by running sandboxes stay.`,
		Example: "  sandbox-agent cache prune --dry-run\n  sandbox-agent cache prune --older-than 12h\n  sandbox-agent cache prune --all",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.all && cmd.Flags().Changed("older-than") {
				return usage("--all removes images of any age: leave out --older-than")
			}
			return o.prune(cmd.Context(), a)
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&o.all, "all", "a", false, "remove everything that no running sandbox uses")
	f.StringVar(&o.olderThan, "older-than", cacheAge, "minimum time without use, such as 30d, 12h or 90m")
	f.BoolVar(&o.dryRun, "dry-run", false, "print what would be removed, and remove nothing")
	o.cacheFlags(a, cmd)
	return cmd
}

func newCacheLoadCmd(a *App) *cobra.Command {
	o := &cacheOptions{}
	cmd := &cobra.Command{
		Use: "load FILE", Short: "Load images from an archive into the cache",
		Long: `Loads the images of an archive made by docker save, compressed or not; - is
standard input. Images that are already cached cost nothing.`,
		Example: "  sandbox-agent cache load images.tar.gz\n  docker save redis:7 | sandbox-agent cache load -",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fault.New(workorder.ExitUsage, fmt.Errorf("%s needs one FILE, got %d", cmd.CommandPath(), len(args)), "make one with `docker save IMAGE -o FILE`; - reads standard input")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return o.load(cmd.Context(), a, args[0]) },
	}
	o.cacheFlags(a, cmd)
	return cmd
}

func newCachePullCmd(a *App) *cobra.Command {
	o := &cacheOptions{}
	cmd := &cobra.Command{
		Use: "pull [--project P | IMAGE...]", Short: "Pull images of a project's services into the cache",
		Long: `Pulls images into the layer cache: from this machine's engine where it has them,
otherwise from their registry. The default is the services of the project. The
images of supabase are not cached.`,
		Example:           "  sandbox-agent cache pull --project my-app\n  sandbox-agent cache pull redis:7 postgres:17",
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, args []string) error { return o.pull(cmd.Context(), a, args) },
	}
	f := cmd.Flags()
	f.StringVarP(&o.project, "project", "p", "", "project name, or path of a project file")
	f.StringVar(&o.projectsDir, "projects-dir", "", "another directory with project files")
	o.cacheFlags(a, cmd)
	return cmd
}

// keep carries out one request. Progress goes to standard error, the report to standard output.
func (o *cacheOptions) keep(ctx context.Context, a *App, verb string, req workorder.CacheRequest, archive io.Reader) (*workorder.CacheReport, error) {
	o.isolation = cmp.Or(o.isolation, workorder.IsolationConfined)
	if !slices.Contains([]string{workorder.IsolationConfined, workorder.IsolationPrivileged}, o.isolation) {
		return nil, usage("--isolation %q is not known: use %s or %s", o.isolation, workorder.IsolationConfined, workorder.IsolationPrivileged)
	}
	st, err := a.store()
	if err != nil {
		return nil, err
	}
	own, err := st.Owner(true)
	if err != nil {
		return nil, err
	}
	be, err := a.open()
	if err != nil {
		return nil, err
	}
	k := &cachebox.Keeper{
		Engine: be.Engine, Images: be.Images, Owner: own.ID, Dir: st.Dir(), Log: a.Log(),
		Image: o.image, Isolation: o.isolation, OCIRuntime: o.ociRuntime, CacheVolume: a.CacheVolume(),
	}
	if !o.json {
		view := a.NewView(a.Stderr, false)
		defer view.Close()
		k.Show = view.Event
	}
	return k.Do(ctx, a.Hard, verb, req, archive)
}

func (o *cacheOptions) ls(ctx context.Context, a *App) error {
	rep, err := o.keep(ctx, a, workorder.CacheList, workorder.CacheRequest{}, nil)
	if err != nil {
		return err
	}
	if o.json {
		return a.json(rep)
	}
	layers := slices.ContainsFunc(rep.Stores, func(s workorder.CacheStore) bool { return s.Layers > 0 || len(s.Images) > 0 })
	if !layers && len(rep.Snapshots) == 0 {
		fmt.Fprintf(a.Stdout, "the cache is empty (%s on the disk): `sandbox-agent cache pull --project P` fills it\n", size(rep.DiskBytes))
		return nil
	}
	if len(rep.Snapshots) > 0 {
		if err := snapshotTable(a, rep.Snapshots); err != nil {
			return err
		}
	}
	for _, s := range rep.Stores {
		if len(s.Images) > 0 {
			if err := cacheTable(a, s.Images); err != nil {
				return err
			}
		}
		fmt.Fprintf(a.Stdout, "%s: %d images, %d layers; %s shared layers, %s of sandboxes, %s to be deleted", s.Name, len(s.Images), s.Layers, size(s.SeedBytes), size(s.BoxBytes), size(s.TrashBytes))
		if len(s.Boxes) > 0 {
			fmt.Fprintf(a.Stdout, "; used by %s", text.Clean(strings.Join(s.Boxes, ", ")))
		}
		fmt.Fprintln(a.Stdout)
	}
	fmt.Fprintf(a.Stdout, "%s on the disk\n", size(rep.DiskBytes))
	return nil
}

func snapshotTable(a *App, all []workorder.CacheSnapshot) error {
	slices.SortStableFunc(all, func(x, y workorder.CacheSnapshot) int { return cmp.Compare(x.Project, y.Project) })
	w := tabwriter.NewWriter(a.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "SETUP OF\tID\tSIZE\tUSED\tMADE\tLIES ON\tNOW")
	for _, s := range all {
		now := ""
		if s.Used {
			now = "in use"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%s\n", text.Clean(s.Project), text.Clean(s.ID), size(s.Bytes), ago(s.UsedAt), ago(s.MadeAt), s.Below, now)
	}
	return w.Flush()
}

func cacheTable(a *App, images []workorder.CacheImage) error {
	w := tabwriter.NewWriter(a.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "IMAGE\tID\tOWN\tSHARED\tUSED\tPUBLISHED\tBOXES")
	for _, i := range images {
		state := strconv.Itoa(len(i.Boxes))
		if i.Problem != "" {
			state = "damaged: " + i.Problem
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", imageName(i), shortID(i.ID), size(i.OwnBytes), size(i.SharedBytes), ago(i.UsedAt), ago(i.PublishedAt), text.Clean(state))
	}
	return w.Flush()
}

// imageName is the readable name of an image: with a tag, if it has one.
func imageName(i workorder.CacheImage) string {
	tags := slices.DeleteFunc(slices.Clone(i.Names), func(n string) bool { return strings.Contains(n, "@") })
	if len(tags) == 0 {
		tags = i.Names
	}
	return text.Clean(cmp.Or(strings.Join(tags, ","), "(no name)"))
}

func shortID(id string) string {
	const digits = 12
	id = strings.TrimPrefix(id, "sha256:")
	return id[:min(digits, len(id))]
}

// size shows bytes in the decimal units of docker.
func size(n int64) string {
	switch {
	case n < 1e3:
		return fmt.Sprintf("%d B", n)
	case n < 1e6:
		return fmt.Sprintf("%.0f kB", float64(n)/1e3)
	case n < 1e9:
		return fmt.Sprintf("%.0f MB", float64(n)/1e6)
	}
	return fmt.Sprintf("%.1f GB", float64(n)/1e9)
}

func (o *cacheOptions) prune(ctx context.Context, a *App) error {
	req := workorder.CacheRequest{DryRun: o.dryRun}
	if !o.all {
		d, err := parseAge(o.olderThan)
		if err != nil {
			return err
		}
		req.OlderThanSeconds = d.Seconds()
	}
	rep, err := o.keep(ctx, a, workorder.CachePrune, req, nil)
	if err != nil {
		return err
	}
	if o.json {
		return a.json(rep)
	}
	would := ""
	if o.dryRun {
		would = "would have "
	}
	for _, s := range rep.Stores {
		for _, i := range s.Removed {
			fmt.Fprintf(a.Stdout, "%sremoved %s (%s, used %s)\n", would, imageName(i), size(i.OwnBytes), ago(i.UsedAt))
		}
		if s.RemovedLayers+s.Leftovers > 0 {
			fmt.Fprintf(a.Stdout, "%sremoved %d layers and %d leftovers of dead sandboxes from %s\n", would, s.RemovedLayers, s.Leftovers, s.Name)
		}
	}
	for _, s := range rep.RemovedSnapshots {
		fmt.Fprintf(a.Stdout, "%sremoved what setup of %s left (%s, used %s)\n", would, text.Clean(s.Project), text.Clean(s.ID), ago(s.UsedAt))
	}
	fmt.Fprintf(a.Stdout, "%sfreed %s\n", would, size(rep.FreedBytes))
	return nil
}

// parseAge reads a time with a unit, which may be days: users count the age of caches in days.
func parseAge(s string) (time.Duration, error) {
	const day = 24 * time.Hour
	d, err := time.ParseDuration(s)
	if n, ok := strings.CutSuffix(s, "d"); ok {
		var days float64
		days, err = strconv.ParseFloat(n, 64)
		if d = time.Duration(days * float64(day)); math.Abs(days) > float64(math.MaxInt64/day) || days != days {
			err = errors.New("too long")
		}
	}
	if err != nil || d < 0 {
		return 0, fault.New(workorder.ExitUsage, fmt.Errorf("--older-than %q is not a time", s), "give a number with d, h, m or s, such as 30d or 12h")
	}
	return d, nil
}

func (o *cacheOptions) load(ctx context.Context, a *App, file string) error {
	in := a.Stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return usage("open the archive: %w", err)
		}
		defer f.Close()
		if st, err := f.Stat(); err == nil && st.IsDir() {
			return fault.New(workorder.ExitUsage, fmt.Errorf("%s is a folder", file), loadHint)
		}
		in = f
	} else if f, ok := in.(*os.File); ok && isTerminal(f) {
		return fault.New(workorder.ExitUsage, errors.New("standard input is a terminal"), loadHint)
	}
	if file == "-" {
		in = a.Input(ctx)
	}
	archive := bufio.NewReader(in)
	if _, err := archive.Peek(1); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("it is empty")
		}
		return fault.New(workorder.ExitInvalid, fmt.Errorf("read the archive %s: %w", file, err), loadHint)
	}
	rep, err := o.keep(ctx, a, workorder.CacheLoad, workorder.CacheRequest{}, archive)
	if err != nil {
		if exitCode(err) == workorder.ExitGeneral {
			err = fault.New(workorder.ExitInvalid, fmt.Errorf("load %s: %w", file, err), loadHint)
		}
		return err
	}
	return o.brought(a, rep)
}

const loadHint = "give an archive made by `docker save IMAGE -o FILE`; - reads standard input"

func (o *cacheOptions) pull(ctx context.Context, a *App, images []string) error {
	if len(images) == 0 || o.project != "" {
		p, err := o.loadProject(ctx, a)
		if err != nil {
			return err
		}
		for i := range p.Services {
			images = append(images, p.Services[i].Image)
		}
		if len(images) == 0 {
			fmt.Fprintf(a.Stderr, "project %s declares no services: there is nothing to bring in\n", text.Clean(p.Name))
			return o.brought(a, &workorder.CacheReport{Stores: []workorder.CacheStore{}, Brought: []string{}})
		}
	}
	slices.Sort(images)
	images = slices.Compact(images)
	for _, i := range images {
		if _, err := reference.ParseNormalizedNamed(i); err != nil {
			return usage("%q is not the name of an image: %w", i, err)
		}
	}
	rep, err := o.keep(ctx, a, workorder.CachePull, workorder.CacheRequest{Images: images}, nil)
	if rep != nil {
		err = errors.Join(fault.New(workorder.ExitBox, err, "pull or build it on this machine first (docker pull): it is taken from there"), o.brought(a, rep))
	}
	return err
}

// loadProject finds the project. Its settings of the box also hold for the cache's box,
// so that the layers fit its runs.
func (o *cacheOptions) loadProject(ctx context.Context, a *App) (*projects.Project, error) {
	s := &resolve.Flags{Project: o.project, ProjectsDir: o.projectsDir, Values: map[string]string{}}
	for flag, value := range map[string]string{"image": o.image, "isolation": o.isolation, "oci-runtime": o.ociRuntime} {
		if value != "" {
			s.Values[flag] = value
		}
	}
	p, err := resolve.Load(s)
	if err != nil {
		return nil, err
	}
	if err := a.resolver(o.json).TrustBox(ctx, s, p); err != nil {
		return nil, err
	}
	o.image, o.isolation, o.ociRuntime = cmp.Or(o.image, p.Image), cmp.Or(o.isolation, p.Isolation), cmp.Or(o.ociRuntime, p.OCIRuntime)
	return p, nil
}

func (o *cacheOptions) brought(a *App, rep *workorder.CacheReport) error {
	if o.json {
		return a.json(rep)
	}
	for _, n := range rep.Brought {
		fmt.Fprintln(a.Stdout, text.Clean(n))
	}
	fmt.Fprintf(a.Stderr, "%d images are in the layer cache, %d layers are new\n", len(rep.Brought), rep.NewLayers)
	return nil
}
