package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "attack:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) > 0 && slices.Contains([]string{"version", "sleep", "touch", "privileged", "read"}, args[0]) {
		return inside(args)
	}
	if len(args) == 1 && args[0] == "race" {
		return race()
	}
	each := func(r Row) error { return json.NewEncoder(os.Stdout).Encode(r) }
	if len(args) == 1 && args[0] == "leave" {
		return leave(context.Background(), each)
	}
	if len(args) == 1 && args[0] == "look" {
		return lookAround(each)
	}
	if len(args) < 2 {
		return errors.New("usage: attack all FILE | attack list FILE | attack network FILE | attack traps FILE | attack sandbox FILE | " +
			"attack leave | attack look | attack measure FILE")
	}
	if args[0] == "table" {
		return printTable(args[1])
	}
	if args[0] == "linger" {
		return linger(context.Background(), args[1])
	}
	if args[0] == "sandbox" {
		return inSandbox(args[1], each)
	}
	c, err := load(args[1])
	if err != nil {
		return err
	}
	if args[0] == "measure" {
		return measure(c)
	}
	if args[0] == "traps" {
		return json.NewEncoder(os.Stdout).Encode(sprung(c))
	}
	// Docker first: what belongs to the inner engine is there once it runs.
	all := slices.Concat(dockerAttempts(), root(), kernelAttempts(), keys(), gatewayAttempts(), gitAttempts(), network())
	if args[0] == "list" {
		return list(c, all, each)
	}
	if args[0] == "network" {
		return tryAll(c, innerAttempts(), each)
	}
	if err := tryAll(c, all, each); err != nil {
		return err
	}
	return innerNetwork(c, each)
}

// list names what "all" tries and expects, so that nothing is missing from a table unseen.
func list(c *Config, all []attempt, each func(Row) error) error {
	for _, a := range all {
		if err := each(Row{Group: a.group, Name: a.name, Expected: string(a.expected(c.Mode))}); err != nil {
			return err
		}
	}
	for _, p := range places(c) {
		for _, a := range innerAttempts() {
			if err := each(Row{Group: innerGroup, Name: p.from + a.name, Expected: string(a.expected(c.Mode))}); err != nil {
				return err
			}
		}
	}
	return nil
}

func tryAll(c *Config, all []attempt, each func(Row) error) error {
	for _, a := range all {
		if err := each(a.row(c)); err != nil {
			return err
		}
	}
	return nil
}
