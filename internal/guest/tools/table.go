package tools

import "regexp"

// table returns the sources of each tool, in the order in which they are tried. The image, and the content of
// Dir, take precedence over all of them.
func table() map[string]*tool {
	all := map[string]*tool{}
	add := func(name string, programs, asks []string, ways ...way) {
		all[name] = &tool{name: name, programs: programs, asks: asks, ways: ways}
	}
	add("node", []string{"node"}, nil,
		npm{pkg: "node-linux-ARCH"},
		distribution{pkg: regexp.MustCompile(`^nodejs$`), at: map[string]string{"node": "/usr/bin/node"}})
	add("npm", []string{"npm", "npx"}, nil, npm{pkg: "npm"})
	add("pnpm", []string{"pnpm", "pnpx"}, nil, npm{pkg: "pnpm"})
	add("yarn", []string{"yarn"}, nil, npm{pkg: "yarn", below: "2"}, npm{pkg: "@yarnpkg/cli-dist", since: "2"})
	add(
		"bun", []string{"bun", "bunx"}, nil, npm{pkg: "@oven/bun-linux-ARCH", files: map[string]string{"bun": "bin/bun", "bunx": "bin/bun"}},
		mise{"bun"},
	)
	add("deno", []string{"deno"}, nil, npm{pkg: "@deno/linux-ARCH-glibc", files: map[string]string{"deno": "deno"}}, mise{"deno"})
	add("go", []string{"go", "gofmt"}, []string{"version"},
		distribution{
			pkg: regexp.MustCompile(`^golang-(1\.[0-9]+)-go$`),
			at:  map[string]string{"go": "/usr/lib/go-FIRST/bin/go", "gofmt": "/usr/lib/go-FIRST/bin/gofmt"},
		},
		golang{})
	add("python", []string{"python3", "python"}, nil,
		mise{"python"},
		distribution{
			pkg: regexp.MustCompile(`^python(3\.[0-9]+)$`), with: []string{"pythonFIRST-venv", "pythonFIRST-dev"},
			at: map[string]string{"python": "/usr/bin/pythonFIRST", "python3": "/usr/bin/pythonFIRST", "pythonFIRST": "/usr/bin/pythonFIRST"},
		})
	add("uv", []string{"uv", "uvx"}, nil, pip{"uv"}, mise{"uv"})
	add("poetry", []string{"poetry"}, nil,
		pip{"poetry"}, mise{"poetry"},
		distribution{pkg: regexp.MustCompile(`^python3-poetry$`), at: map[string]string{"poetry": "/usr/bin/poetry"}})
	add(
		"rust", []string{"rustc", "cargo"}, nil,
		mise{"rust"},
		distribution{
			pkg: regexp.MustCompile(`^rustc$`), with: []string{"cargo"}, at: map[string]string{"rustc": "/usr/bin/rustc", "cargo": "/usr/bin/cargo"},
		},
	)
	add(
		"java", []string{"java", "javac"}, []string{"-version"},
		mise{"java"},
		distribution{
			pkg: regexp.MustCompile(`^openjdk-([0-9]+)-jdk-headless$`), at: map[string]string{"*": "/usr/lib/jvm/java-FIRST-openjdk-ARCH/bin/*"},
		},
	)
	add("maven", []string{"mvn"}, nil,
		mise{"maven"},
		distribution{pkg: regexp.MustCompile(`^maven$`), at: map[string]string{"mvn": "/usr/bin/mvn"}})
	add("gradle", []string{"gradle"}, nil,
		mise{"gradle"},
		distribution{pkg: regexp.MustCompile(`^gradle$`), at: map[string]string{"gradle": "/usr/bin/gradle"}})
	add("ruby", []string{"ruby", "gem", "bundle"}, nil,
		mise{"ruby"},
		distribution{
			pkg: regexp.MustCompile(`^ruby([0-9]\.[0-9]+)$`), with: []string{"rubyFIRST-dev", "ruby-bundler"},
			at: map[string]string{"ruby": "/usr/bin/rubyFIRST", "gem": "/usr/bin/gemFIRST", "bundle": "/usr/bin/bundle"},
		})
	add("php", []string{"php"}, nil,
		distribution{
			pkg: regexp.MustCompile(`^php([0-9]\.[0-9]+)-cli$`), with: []string{"phpFIRST-xml", "phpFIRST-mbstring"},
			at: map[string]string{"php": "/usr/bin/phpFIRST"},
		})
	return all
}
