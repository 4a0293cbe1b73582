package workcmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/proc"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
)

// openTime bounds the program that hands a page to the browser; it does not wait for that one.
const openTime = 10 * time.Second

type openOptions struct{ report, pr, print bool }

// NewCmdOpen makes the command.
func NewCmdOpen(f *cmdutil.Factory) *cobra.Command {
	o := &openOptions{}
	cmd := &cobra.Command{
		Use: "open [TASK]", Short: "Open a task's pull request or report in a browser", Args: cmdutil.LastOrOne,
		ValidArgsFunction: f.CompleteTasks(false),
		Long: `Opens the pull request of a task, or its report where there is none, and prints
which. Without a browser it only prints it. The default is the last task of the
repository in the current directory, and outside of any repository the last
task.`,
		Example: "  sandbox-agent open\n  sandbox-agent open A1B2 --report\n  sandbox-agent open A1B2 --print",
		RunE:    func(cmd *cobra.Command, args []string) error { return o.do(cmd.Context(), args, f) },
	}
	cmd.Flags().BoolVar(&o.report, "report", false, "open the report, also where there is a pull request")
	cmd.Flags().BoolVar(&o.pr, "pr", false, "open the pull request, or fail where there is none")
	cmd.Flags().BoolVar(&o.print, "print", false, "print the address and open nothing")
	return cmd
}

func (o *openOptions) do(ctx context.Context, args []string, f *cmdutil.Factory) error {
	if o.report && o.pr {
		return app.Usagef("give --report or --pr, not both")
	}
	page, err := f.Works().Page(ctx, args, o.report, o.pr)
	if err != nil {
		return err
	}
	fmt.Fprintln(f.Stdout, text.Clean(page))
	if o.print {
		return nil
	}
	return browse(ctx, f, page)
}

// browse hands a page to the user's browser. A machine without one is no error: the page was printed.
func browse(ctx context.Context, f *cmdutil.Factory, page string) error {
	program := "xdg-open"
	if runtime.GOOS == "darwin" {
		program = "open"
	} else if f.Getenv("DISPLAY") == "" && f.Getenv("WAYLAND_DISPLAY") == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	err := proc.Run(ctx, proc.Spec{Argv: []string{program, page}, Env: os.Environ()})
	if errors.Is(err, proc.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", page, err)
	}
	return nil
}
