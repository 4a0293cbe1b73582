package setupcmd

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/image"
	"github.com/sandbox-agent/sandbox-agent/internal/app"
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
	var with []string
	build := &cobra.Command{
		Use: "build", Short: "Build the default image if it is missing", Args: cmdutil.NoArgs,
		Long: `Builds the default image if it is missing, and prints its name. Agents, the
Supabase CLI and a browser are parts: layers of the images whose sandboxes need
them. --with names exactly the parts of an image. Without it, the image is the
one for the project of the current directory; an existing one may have more.`,
		Example: `  sandbox-agent image build
  sandbox-agent image build --with codex,browser
  sandbox-agent image build --with all --rebuild`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return buildImage(cmd.Context(), f, with, rebuild, buildJSON)
		},
	}
	parts := append(image.Parts(), app.AllParts, app.NoParts)
	build.Flags().StringSliceVar(&with, "with", nil, "parts of the image: "+strings.Join(parts, ", ")+" (default: those of the project)")
	// It can only fail for a flag that does not exist.
	_ = build.RegisterFlagCompletionFunc("with", cobra.FixedCompletions(parts, cobra.ShellCompDirectiveNoFileComp))
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

func buildImage(ctx context.Context, f *cmdutil.Factory, with []string, rebuild, asJSON bool) error {
	view := f.NewView(f.Stdout, asJSON)
	img, err := f.Machine().BuildImage(ctx, with, rebuild, view.Event)
	view.Close()
	if err != nil {
		return err
	}
	if asJSON {
		return json.NewEncoder(f.Stdout).Encode(img)
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
	fmt.Fprintln(w, "IMAGE\tTAGS\tPARTS\tVERSION\tCREATED\tSIZE\tIN USE")
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
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d MB\t%s\n", id[:min(len(id), short)], text.Clean(cmp.Or(strings.Join(i.Tags, ", "), "-")),
			text.Clean(cmp.Or(strings.ReplaceAll(i.Parts, " ", ","), "-")), text.Clean(i.Version), i.Created, i.Bytes/1e6, strings.Join(use, ", "))
	}
	return w.Flush()
}
