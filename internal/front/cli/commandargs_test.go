package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
)

// A command's words are its own; flags behind the name and a dash before the command count as they did.
func TestNameAndCommand(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ line, name, argv, dir string }{
		{"dev ls -la", "dev", "ls -la", ""},
		{"dev -- ls -la", "dev", "ls -la", ""},
		{"-w /tmp dev ls -w x", "dev", "ls -w x", "/tmp"},
		{"dev -w /tmp -- ls -- x", "dev", "ls -- x", "/tmp"},
		{"dev --workdir=/tmp ls", "dev", "ls", "/tmp"},
		{"-- ls -la", "", "ls -la", ""},
		{"-w /tmp -- ls", "", "ls", "/tmp"},
		{"dev", "dev", "", ""},
		{"", "", "", ""},
	} {
		var dir, name string
		var argv []string
		cmd := &cobra.Command{Use: "x", RunE: func(*cobra.Command, []string) error { return nil }, Args: func(cmd *cobra.Command, args []string) (err error) {
			name, argv, err = cmdutil.NameAndCommand(cmd, args)
			return err
		}}
		cmd.Flags().StringVarP(&dir, "workdir", "w", "", "")
		cmd.Flags().SetInterspersed(false)
		cmd.SetArgs(strings.Fields(row.line))
		if err := cmd.Execute(); err != nil || name != row.name || !slices.Equal(argv, strings.Fields(row.argv)) || dir != row.dir {
			t.Errorf("%q: name %q, command %q, directory %q, %v", row.line, name, argv, dir, err)
		}
	}
}

func TestParsePorts(t *testing.T) {
	t.Parallel()
	ports, err := app.ParsePorts([]string{"8080:3000", "5432"})
	if err != nil || len(ports) != 2 || ports[0].Local != 8080 || ports[0].Port != 3000 || ports[1].Local != 0 || ports[1].Port != 5432 {
		t.Errorf("%+v, %v", ports, err)
	}
	for _, bad := range [][]string{{"0"}, {"0:1"}, {"1:0"}, {"1:"}, {":1"}, {"65536"}, {"1:2:3"}, {"80", "81:80"}} {
		if _, err := app.ParsePorts(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}
