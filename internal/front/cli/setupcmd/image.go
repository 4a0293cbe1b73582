package setupcmd

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
)

// NewCmdImage makes the command.
func NewCmdImage(f *cmdutil.Factory) *cobra.Command {
	cmd := &cobra.Command{
		Use: "image", Short: "Build and list images of sandboxes", Args: cmdutil.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var rebuild, buildJSON, lsJSON bool
	build := &cobra.Command{
		Use: "build", Short: "Build the default image if it is missing", Args: cmdutil.NoArgs,
		Example: "  sandbox-agent image build\n  sandbox-agent image build --rebuild",
		RunE:    func(cmd *cobra.Command, _ []string) error { return buildImage(cmd.Context(), f, rebuild, buildJSON) },
	}
	build.Flags().BoolVar(&rebuild, "rebuild", false, "build it again, without the cache")
	build.Flags().BoolVar(&buildJSON, "json", false, "print events, then the image, as JSON lines")
	ls := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List images that this program built", Args: cmdutil.NoArgs,
		Example: "  sandbox-agent image ls --json",
		RunE:    func(cmd *cobra.Command, _ []string) error { return listImages(cmd.Context(), f, lsJSON) },
	}
	ls.Flags().BoolVar(&lsJSON, "json", false, "print a JSON list")
	cmd.AddCommand(build, ls)
	return cmd
}

func buildImage(ctx context.Context, f *cmdutil.Factory, rebuild, asJSON bool) error {
	view := f.NewView(f.Stdout, asJSON)
	img, err := f.Machine().BuildImage(ctx, rebuild, view.Event)
	view.Close()
	if err != nil {
		return err
	}
	if asJSON {
		return f.JSON(img)
	}
	fmt.Fprintln(f.Stdout, img.Name)
	return nil
}

// needsWidth is how much of what an image was prepared with is shown, in characters.
const needsWidth = 60

func listImages(ctx context.Context, f *cmdutil.Factory, asJSON bool) error {
	list, err := f.Machine().Images(ctx)
	if err != nil {
		return err
	}
	if asJSON {
		return f.JSON(list)
	}
	w := tabwriter.NewWriter(f.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "IMAGE\tTAGS\tVERSION\tCREATED\tSIZE\tIN USE")
	for _, i := range list {
		var use []string
		if i.Current {
			use = append(use, "by this version")
		}
		if i.Used {
			use = append(use, "by a container")
		}
		if i.Prepared != "" && !i.Old {
			use = append(use, "for projects with "+text.Clean(text.Runes(i.Prepared, needsWidth)))
		}
		id := strings.TrimPrefix(i.ID, "sha256:")
		const short = 12 // the length of docker's ids
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d MB\t%s\n", id[:min(len(id), short)], text.Clean(cmp.Or(strings.Join(i.Tags, ", "), "-")),
			text.Clean(i.Version), i.Created, i.Bytes/1e6, strings.Join(use, ", "))
	}
	return w.Flush()
}
