package detect

import (
	"github.com/sandbox-agent/sandbox-agent/internal/lazyregexp"
)

var rust = ecosystem{
	name: "cargo", files: []string{"Cargo.toml"}, tools: "rust",
	rules: []rule{
		{words: "cargo test", kind: kindTest, narrow: cargoPart},
		{words: "cargo clippy", kind: kindLint, narrow: cargoPart, packages: []string{"rust-clippy"}},
		{words: "cargo fmt", kind: kindFormat, must: checkOnly, packages: []string{"rustfmt"}},
		{words: "cargo check", kind: kindBuild, narrow: cargoPart},
		{words: "cargo build", kind: kindBuild, narrow: cargoPart},
		{words: "cargo fetch", kind: kindInstall},
		{words: "cargo install", kind: kindNothing},
		{words: "rustup", kind: kindNothing},
		{words: "cargo nextest", kind: kindOther, why: "cargo-nextest is not in the sandbox"},
	},
}

var (
	cargoPart = lazyregexp.New(`\s` +
		among(`-p --package --test --bin --bins --example --examples --bench --benches --doc --lib --no-run --target
			--no-default-features --ignored --skip -Z\S*`) +
		`(?:[= ]|$)|\s--manifest-path[= ](?:\./)?\w[\w.-]*/`)
	// cargoMember selects a package of a workspace.
	cargoMember = lazyregexp.New(`\s(?:-p|--package)[= ]([\w-]+)`)
	cargoRoot   = lazyregexp.New(`(?m)^\[workspace\]`)
	cargoAll    = lazyregexp.New(`\s--(?:workspace|all)(?:\s|$)`)
	cargoPkg    = lazyregexp.New(`(?m)^\[package\]`)
	rustNeeds   = lazyregexp.New(`(?m)^rust-version\s*=\s*"([0-9][^"\n]*)"`)
)

func readRust(d *detector, p *part) {
	f := d.toml("Cargo.toml")
	if p.broken = f == nil; p.broken {
		return
	}
	at := Position{File: f.name}
	d.need(at, "cargo", "rustc")
	d.matched(f, rustNeeds, "rust", ">=")
	args := ""
	if d.has("Cargo.lock") {
		at, args = d.whole("Cargo.lock"), " --locked"
	}
	p.install(at, "cargo fetch"+args)
	lists := f.text
	if lock := d.open("Cargo.lock"); lock != nil {
		lists = lock.text
	}
	needLibraries(d, &rust, at, lists)
	if cargoRoot.MatchString(f.text) {
		args = " --workspace" + args
		for _, dir := range d.manifestDirs() {
			if (&detector{d.source, dir}).has("Cargo.toml") {
				d.member(dir)
			}
		}
		if cargoPkg.MatchString(f.text) { // a command at such a root covers the root's package alone
			p.covers = cargoAll.MatchString
		}
	}
	p.convention(at, "cargo test"+args)
}
