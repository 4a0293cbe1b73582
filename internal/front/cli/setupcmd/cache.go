package setupcmd

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

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

// cacheAge is the default age at which an image without a project is removed: a project
// that was worked on within a month still starts warm.
const cacheAge = "30d"

type cacheOptions struct {
	app.CacheBox
	project, projectsDir string
	repo                 string
	olderThan            string
	all, dryRun, json    bool
}

// NewCmdCache makes the command.
func NewCmdCache(f *cmdutil.Factory) *cobra.Command {
	cmd := &cobra.Command{
		Use: "cache", Short: "Manage the cache that sandboxes share", Args: cmdutil.NoArgs,
		Long: `Sandboxes of one engine share image layers, so that each image is pulled once,
and the outcome of a project's setup, so that it runs once for the same
dependencies. These commands list, fill and prune that cache, and move outcomes of
setup to other machines. Each starts a small sandbox for its work and removes it.
All are safe while tasks run. 'gc --cache' removes the whole cache.`,
		Example: "  sandbox-agent cache ls\n  sandbox-agent cache pull --project my-app\n  sandbox-agent cache prune --older-than 7d",
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newCacheLsCmd(f), newCachePruneCmd(f), newCacheLoadCmd(f), newCachePullCmd(f), newCacheExportCmd(f),
		newCacheImportCmd(f))
	return cmd
}

// cacheFlags are the flags of all cache commands, and those that shape the cache's box.
func (o *cacheOptions) cacheFlags(f *cmdutil.Factory, cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&o.json, "json", false, "print JSON")
	flags.StringVar(&o.Image, "image", "", "image of the sandbox (default: built by this program)")
	flags.StringVar(&o.Isolation, "isolation", "", "isolation of the sandbox: confined or privileged")
	flags.StringVar(&o.OCIRuntime, "oci-runtime", "", "OCI runtime of the engine")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		_, err := cmdutil.FromEnvironment(cmd.Flags(), f.Getenv, app.SettingFlags()...)
		return err
	}
	f.CompleteRunFlags(cmd)
}

func newCacheLsCmd(f *cmdutil.Factory) *cobra.Command {
	o := &cacheOptions{}
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the content of the cache", Args: cmdutil.NoArgs,
		Long: `Lists outcomes of setup, and the images in the layer cache. OWN is the size of
layers that no other image has, SHARED that of the others. USED is when a task
last used the image.`,
		Example: "  sandbox-agent cache ls\n  sandbox-agent cache ls --json",
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.ls(cmd.Context(), f) },
	}
	o.cacheFlags(f, cmd)
	return cmd
}

func newCachePruneCmd(f *cmdutil.Factory) *cobra.Command {
	o := &cacheOptions{}
	cmd := &cobra.Command{
		Use: "prune", Short: "Remove unused entries from the cache", Args: cmdutil.NoArgs,
		Long: `Removes images and outcomes of setup that no task has used for --older-than, and
layers that no image needs. Entries in use by running sandboxes stay.`,
		Example: "  sandbox-agent cache prune --dry-run\n  sandbox-agent cache prune --older-than 12h\n  sandbox-agent cache prune --all",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.all && cmd.Flags().Changed("older-than") {
				return app.Usagef("--all removes images of any age: leave out --older-than")
			}
			return o.prune(cmd.Context(), f)
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&o.all, "all", "a", false, "remove everything that no running sandbox uses")
	flags.StringVar(&o.olderThan, "older-than", cacheAge, "minimum time without use, such as 30d, 12h or 90m")
	flags.BoolVar(&o.dryRun, "dry-run", false, "print what would be removed, and remove nothing")
	o.cacheFlags(f, cmd)
	return cmd
}

func newCacheLoadCmd(f *cmdutil.Factory) *cobra.Command {
	o := &cacheOptions{}
	cmd := &cobra.Command{
		Use: "load FILE", Short: "Load images from an archive into the cache",
		Long: `Loads the images of an archive made by docker save, compressed or not; - is
standard input. Images that are already cached cost nothing.`,
		Example: "  sandbox-agent cache load images.tar.gz\n  docker save redis:7 | sandbox-agent cache load -",
		Args:    cmdutil.Args(1, 1, "one FILE", loadHint),
		RunE:    func(cmd *cobra.Command, args []string) error { return o.load(cmd.Context(), f, args[0]) },
	}
	o.cacheFlags(f, cmd)
	return cmd
}

func newCachePullCmd(f *cmdutil.Factory) *cobra.Command {
	o := &cacheOptions{}
	cmd := &cobra.Command{
		Use: "pull [--project P | IMAGE...]", Short: "Pull images of a project's services into the cache",
		Long: `Pulls images into the layer cache: from this machine's engine where it has them,
otherwise from their registry. The default is the services of the project. The
images of supabase are not cached.`,
		Example:           "  sandbox-agent cache pull --project my-app\n  sandbox-agent cache pull redis:7 postgres:17",
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, args []string) error { return o.pull(cmd.Context(), f, args) },
	}
	flags := cmd.Flags()
	flags.StringVarP(&o.project, "project", "p", "", "project name, or path of a project file")
	flags.StringVar(&o.projectsDir, "projects-dir", "", "another directory with project files")
	o.cacheFlags(f, cmd)
	return cmd
}

// view shows progress on standard error until done is called.
func (o *cacheOptions) view(f *cmdutil.Factory) (show func(workorder.Event), done func()) {
	if o.json {
		return nil, func() {}
	}
	view := f.NewView(f.Stderr, false)
	return view.Event, view.Close
}

// keep carries out one request. Progress goes to standard error, the report to standard output.
func (o *cacheOptions) keep(ctx context.Context, f *cmdutil.Factory, verb string, req workorder.CacheRequest,
	archive io.Reader,
) (*workorder.CacheReport, error) {
	show, done := o.view(f)
	defer done()
	return f.Machine().KeepCache(ctx, o.CacheBox, verb, req, archive, show)
}

func (o *cacheOptions) ls(ctx context.Context, f *cmdutil.Factory) error {
	rep, err := o.keep(ctx, f, workorder.CacheList, workorder.CacheRequest{}, nil)
	if err != nil {
		return err
	}
	if o.json {
		return f.JSON(rep)
	}
	layers := slices.ContainsFunc(rep.Stores, func(s workorder.CacheStore) bool { return s.Layers > 0 || len(s.Images) > 0 })
	if !layers && len(rep.Snapshots) == 0 {
		fmt.Fprintf(f.Stdout, "the cache is empty (%s on the disk): `sandbox-agent cache pull --project P` fills it\n",
			cmdutil.Size(rep.DiskBytes))
		return nil
	}
	if len(rep.Snapshots) > 0 {
		if err := snapshotTable(f, rep.Snapshots); err != nil {
			return err
		}
	}
	for _, s := range rep.Stores {
		if len(s.Images) > 0 {
			if err := cacheTable(f, s.Images); err != nil {
				return err
			}
		}
		fmt.Fprintf(f.Stdout, "%s: %d images, %d layers; %s shared layers, %s of sandboxes, %s to be deleted", s.Name, len(s.Images), s.Layers,
			cmdutil.Size(s.SeedBytes), cmdutil.Size(s.BoxBytes), cmdutil.Size(s.TrashBytes))
		if len(s.Boxes) > 0 {
			fmt.Fprintf(f.Stdout, "; used by %s", text.Clean(strings.Join(s.Boxes, ", ")))
		}
		fmt.Fprintln(f.Stdout)
	}
	fmt.Fprintf(f.Stdout, "%s on the disk\n", cmdutil.Size(rep.DiskBytes))
	return nil
}

func snapshotTable(f *cmdutil.Factory, all []workorder.CacheSnapshot) error {
	slices.SortStableFunc(all, func(x, y workorder.CacheSnapshot) int { return cmp.Compare(x.Project, y.Project) })
	w := tabwriter.NewWriter(f.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "SETUP OF\tID\tSIZE\tUSED\tMADE\tLAYERS BELOW\tNOW")
	for _, s := range all {
		now := ""
		if s.Used {
			now = "in use"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%s\n", text.Clean(s.Project), text.Clean(s.ID), cmdutil.Size(s.Bytes), cmdutil.Ago(s.UsedAt),
			cmdutil.Ago(s.MadeAt), s.Below, now)
	}
	return w.Flush()
}

func cacheTable(f *cmdutil.Factory, images []workorder.CacheImage) error {
	w := tabwriter.NewWriter(f.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "IMAGE\tID\tOWN\tSHARED\tUSED\tPUBLISHED\tBOXES")
	for _, i := range images {
		state := strconv.Itoa(len(i.Boxes))
		if i.Problem != "" {
			state = "damaged: " + i.Problem
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", imageName(i), shortID(i.ID), cmdutil.Size(i.OwnBytes), cmdutil.Size(i.SharedBytes),
			cmdutil.Ago(i.UsedAt), cmdutil.Ago(i.PublishedAt), text.Clean(state))
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

func (o *cacheOptions) prune(ctx context.Context, f *cmdutil.Factory) error {
	req := workorder.CacheRequest{DryRun: o.dryRun}
	if !o.all {
		d, err := parseAge(o.olderThan)
		if err != nil {
			return err
		}
		req.OlderThanSeconds = d.Seconds()
	}
	rep, err := o.keep(ctx, f, workorder.CachePrune, req, nil)
	if err != nil {
		return err
	}
	if o.json {
		return f.JSON(rep)
	}
	would := ""
	if o.dryRun {
		would = "would have "
	}
	for _, s := range rep.Stores {
		for _, i := range s.Removed {
			fmt.Fprintf(f.Stdout, "%sremoved %s (%s, used %s)\n", would, imageName(i), cmdutil.Size(i.OwnBytes), cmdutil.Ago(i.UsedAt))
		}
		if s.RemovedLayers+s.Leftovers > 0 {
			fmt.Fprintf(f.Stdout, "%sremoved %d layers and %d leftovers of dead sandboxes from %s\n", would, s.RemovedLayers, s.Leftovers, s.Name)
		}
	}
	for _, s := range rep.RemovedSnapshots {
		fmt.Fprintf(f.Stdout, "%sremoved what setup of %s left (%s, used %s)\n", would, text.Clean(s.Project), text.Clean(s.ID),
			cmdutil.Ago(s.UsedAt))
	}
	fmt.Fprintf(f.Stdout, "%sfreed %s\n", would, cmdutil.Size(rep.FreedBytes))
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
		return 0, exiterr.New(workorder.ExitUsage, fmt.Errorf("--older-than %q is not a time", s),
			"give a number with d, h, m or s, such as 30d or 12h")
	}
	return d, nil
}

func (o *cacheOptions) load(ctx context.Context, f *cmdutil.Factory, path string) error {
	archive, done, err := openArchive(ctx, f, path, loadHint)
	if err != nil {
		return err
	}
	defer done()
	rep, err := o.keep(ctx, f, workorder.CacheLoad, workorder.CacheRequest{}, archive)
	if err != nil {
		if app.ExitCode(err) == workorder.ExitGeneral {
			err = exiterr.New(workorder.ExitInvalid, fmt.Errorf("load %s: %w", path, err), loadHint)
		}
		return err
	}
	return o.brought(f, rep)
}

// openArchive opens a file, or standard input for -, that has some content.
func openArchive(ctx context.Context, f *cmdutil.Factory, path, hint string) (archive io.Reader, done func(), err error) {
	in, done := f.Stdin, func() {}
	switch {
	case path != "-":
		file, err := os.Open(path)
		if err != nil {
			return nil, nil, app.Usagef("open the archive: %w", err)
		}
		if st, err := file.Stat(); err == nil && st.IsDir() {
			return nil, nil, errors.Join(exiterr.New(workorder.ExitUsage, fmt.Errorf("%s is a directory", path), hint), file.Close())
		}
		in, done = file, func() { _ = file.Close() }
	case cmdutil.IsTerminal(in):
		return nil, nil, exiterr.New(workorder.ExitUsage, errors.New("standard input is a terminal"), hint)
	default:
		in = f.Input(ctx)
	}
	buffered := bufio.NewReader(in)
	if _, err := buffered.Peek(1); err != nil {
		done()
		if errors.Is(err, io.EOF) {
			err = errors.New("it is empty")
		}
		return nil, nil, exiterr.New(workorder.ExitInvalid, fmt.Errorf("read the archive %s: %w", path, err), hint)
	}
	return buffered, done, nil
}

const loadHint = "give an archive made by `docker save IMAGE -o FILE`; - reads standard input"

func (o *cacheOptions) pull(ctx context.Context, f *cmdutil.Factory, images []string) error {
	if len(images) == 0 || o.project != "" {
		p, err := f.Machine().CacheProject(ctx, o.project, o.projectsDir, &o.CacheBox, !o.json)
		if err != nil {
			return err
		}
		for i := range p.Services {
			images = append(images, p.Services[i].Image)
		}
		if len(images) == 0 {
			fmt.Fprintf(f.Stderr, "project %s declares no services: no images to pull\n", text.Clean(p.Name))
			return o.brought(f, &workorder.CacheReport{Stores: []workorder.CacheStore{}, Brought: []string{}})
		}
	}
	slices.Sort(images)
	images = slices.Compact(images)
	for _, i := range images {
		if _, err := reference.ParseNormalizedNamed(i); err != nil {
			return app.Usagef("%q is not the name of an image: %w", i, err)
		}
	}
	rep, err := o.keep(ctx, f, workorder.CachePull, workorder.CacheRequest{Images: images}, nil)
	if rep != nil {
		err = errors.Join(exiterr.New(workorder.ExitBox, err, "pull or build it on this machine first (docker pull): it is taken from there"),
			o.brought(f, rep))
	}
	return err
}

func (o *cacheOptions) brought(f *cmdutil.Factory, rep *workorder.CacheReport) error {
	if o.json {
		return f.JSON(rep)
	}
	for _, n := range rep.Brought {
		fmt.Fprintln(f.Stdout, text.Clean(n))
	}
	fmt.Fprintf(f.Stderr, "%d images are in the layer cache, %d layers are new\n", len(rep.Brought), rep.NewLayers)
	return nil
}
