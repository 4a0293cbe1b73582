package egress

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sandbox-agent/sandbox-agent/internal/proc"
)

// applyTime bounds one change of the rules: it takes milliseconds, and the first one
// can load kernel modules.
const applyTime = 10 * time.Second

// apply replaces the rules in one transaction: either all new ones are in force or all old ones.
func apply(ctx context.Context, rules string) error {
	ctx, cancel := context.WithTimeout(ctx, applyTime)
	defer cancel()
	_, err := proc.Output(ctx, proc.Spec{Argv: []string{"nft", "-f", "-"}, Stdin: strings.NewReader(rules)})
	if err == nil {
		return nil
	}
	return fmt.Errorf("load the firewall rules: %w: %s", err, applyHint(err))
}

func applyHint(err error) string {
	var exit *proc.ExitError
	switch {
	case !errors.As(err, &exit): // it did not start at all
		return "the image needs the program nft (package nftables): rebuild the image"
	case strings.Contains(exit.Stderr, "not permitted"):
		return "the sandbox needs the capability NET_ADMIN: start it with --cap-add NET_ADMIN"
	}
	return "the kernel needs nf_tables with inet tables, NAT (redirect, masquerade), fib, reject, log and conntrack: " +
		"use a machine whose kernel has them (modules nft_redir, nft_masq, nft_fib_inet, nft_reject_inet, nft_log, nft_ct)"
}
