package setupcmd

import (
	"context"
	"fmt"
	"strings"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

type deepOptions struct {
	app.DeepOptions
	deep, json bool
}

// do runs the Docker checks in real sandboxes, as ordinary tasks.
func (o *deepOptions) do(ctx context.Context, f *cmdutil.Factory) error {
	names, err := app.DockerCheckNames()
	if err != nil {
		return err
	}
	width, failed := 0, 0
	for _, n := range names {
		width = max(width, len(n))
	}
	// The long steps before the first check are shown on standard error.
	step := func(e workorder.Event) {
		if e.Type == workorder.EventStepStarted {
			f.Say("… " + strings.TrimSpace(e.Name+" "+e.Text))
		}
	}
	var checks []app.DockerCheck
	err = f.Machine().Conform(ctx, o.DeepOptions, step, func(c app.DockerCheck) {
		checks = append(checks, c)
		status := "ok"
		if !c.OK {
			status = "FAIL"
			failed++
		}
		if o.json {
			return
		}
		detail := strings.ReplaceAll(text.Clean(c.Detail), "|", " | ")
		line := fmt.Sprintf("%-4s  %-8s  %-*s  %s", status, c.Part, width, text.Clean(c.Name), detail)
		fmt.Fprintln(f.Stdout, strings.TrimRight(line, " "))
	})
	if err != nil {
		return err
	}
	if o.json {
		err = f.JSON(checks)
	} else {
		held := o.Isolation
		if o.OCIRuntime != "" {
			held += ", OCI runtime " + o.OCIRuntime
		}
		fmt.Fprintf(f.Stdout, "\n%d checks, %d failed (%s)\n", len(checks), failed, held)
	}
	if err == nil && failed > 0 {
		err = cmdutil.Exit(workorder.ExitGeneral)
	}
	return err
}

// tryRuntime tries the promises of a runtime of standalone sandboxes.
func (o *deepOptions) tryRuntime(ctx context.Context, f *cmdutil.Factory, name string) error {
	kind, err := f.Runtime(name)
	if err != nil {
		return err
	}
	var checks []app.RuntimeCheck
	failed, notOffered := 0, []string(nil)
	err = f.Machine().TryRuntime(ctx, kind, o.DeepOptions, func(c app.RuntimeCheck) {
		checks = append(checks, c)
		word := "ok"
		switch {
		case !c.Offered:
			word, notOffered = "none", append(notOffered, c.Name)
		case !c.OK:
			word = "FAIL"
			failed++
		}
		if o.json {
			return
		}
		line := fmt.Sprintf("%-4s  %s", word, c.Name)
		if c.Detail != "" {
			line += ": " + text.Printable(c.Detail)
		}
		fmt.Fprintln(f.Stdout, line)
	})
	if err != nil {
		return err
	}
	if o.json {
		err = f.JSON(checks)
	} else {
		fmt.Fprintf(f.Stdout, "\n%d promises, %d do not hold, %q are not given by %s\n", len(checks), failed, notOffered, kind)
	}
	if err == nil && failed > 0 {
		err = cmdutil.Exit(workorder.ExitGeneral)
	}
	return err
}
