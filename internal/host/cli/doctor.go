package cli

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/host/doctor"
	"github.com/sandbox-agent/sandbox-agent/internal/host/render"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func newDoctorCmd(a *App) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check what this machine can do", Args: noArgs,
		Long:    "Doctor checks the engine, what isolation it can give, the image, disk space, git and gh.\nIt starts throw-away containers of the box's image when that is there, and pulls nothing.",
		Example: "  sandbox-agent doctor\n  sandbox-agent doctor --json",
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.runDoctor(cmd.Context(), asJSON) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the checks as JSON")
	return cmd
}

func (a *App) runDoctor(ctx context.Context, asJSON bool) error {
	st, err := a.store()
	if err != nil {
		return err
	}
	d := doctor.Doctor{StateDir: st.Dir(), Owner: owner(st.Dir())}
	be, err := a.open()
	if err != nil {
		d.OpenError = err
	} else {
		d.Engine = be.Engine
		d.Images = func(ctx context.Context) ([]string, error) {
			list, err := be.Images.List(ctx)
			var names []string
			for _, i := range list {
				if i.Current {
					names = append(names, i.Name)
				}
			}
			return names, err
		}
	}
	checks := d.Run(ctx)
	if asJSON {
		err = a.json(checks)
	} else {
		w := tabwriter.NewWriter(a.Stdout, 0, 4, 2, ' ', 0)
		for _, c := range checks {
			fmt.Fprintf(w, "%s\t%s\t%s\n", c.Status, render.Clean(c.Name), render.Clean(c.Message))
			if c.Hint != "" {
				fmt.Fprintf(w, "\t\thint: %s\n", render.Clean(c.Hint))
			}
		}
		err = w.Flush()
	}
	if err != nil {
		return err
	}
	for _, c := range checks {
		if c.Status == doctor.Fail {
			return &ending{workorder.ExitGeneral}
		}
	}
	return nil
}
