package sandboxcmd

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/app"
	"github.com/sandbox-agent/sandbox-agent/internal/front/cmdutil"
	"github.com/sandbox-agent/sandbox-agent/internal/text"
)

// calls shows the calls of the model gateway.
func (o *logsOptions) calls(ctx context.Context, f *cmdutil.Factory, name string) error {
	if o.follow {
		return app.Usagef("--api and --follow cannot be combined")
	}
	all, raw, err := app.ModelCalls(ctx, &f.Env, name, o.attempt)
	if err != nil {
		return err
	}
	if o.json {
		_, err := f.Stdout.Write(text.EscapeControls(raw))
		return err
	}
	w := tabwriter.NewWriter(f.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "TIME\tAPI\tMODEL\tSTATUS\tINPUT\tOUTPUT\tCACHE READ\tCACHE WRITE\tUSD\tTOOK\tREFUSED")
	for _, c := range all {
		usd := "-"
		if c.CostUSD != nil {
			usd = fmt.Sprintf("%.4f", *c.CostUSD)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t%s\n", c.Time.Local().Format(time.DateTime), text.Clean(c.API),
			text.Clean(c.Model), c.Status, c.Input, c.Output, c.CacheRead, c.CacheWrite, usd,
			time.Duration(c.Millis)*time.Millisecond, text.Clean(c.Refused))
	}
	return w.Flush()
}
