package surface

// pathRules is the table of files that run, or decide what runs. Where two patterns fit, the first counts.
func pathRules() []pathRule {
	return []pathRule{
		{kind: kindWorkflow, check: checkCI, paths: []string{
			"/.github/workflows/**", ".github/actions/**", "action.yml", "action.yaml", "/.forgejo/**", "/.gitea/**",
			".gitlab-ci.yml", "*.gitlab-ci.yml", "/.gitlab/**", "/.circleci/**", "/.azure-pipelines/**", "/.azuredevops/**", "azure-pipelines*.yml", "azure-pipelines*.yaml",
			"/.buildkite/**", "jenkinsfile*", "*.jenkinsfile", ".drone.yml", ".drone.yaml", ".drone.star", ".drone.jsonnet", ".woodpecker.yml", ".woodpecker.yaml", "/.woodpecker/**",
			"bitbucket-pipelines.yml", ".travis.yml", "appveyor.yml", ".appveyor.yml", ".cirrus.yml", ".cirrus.star", "cloudbuild*.yaml", "cloudbuild*.yml", "/.semaphore/**", "codemagic.yaml",
			"/.build.yml", "/.builds/**", "buildspec*.yml", "/.tekton/**", "netlify.toml", "vercel.json", ".readthedocs.yml", ".readthedocs.yaml", "/.github/renovate.json*", "renovate.json*", "/.ci/**",
		}},
		{kind: kindHook, check: checkHookConfig, unasked: true, paths: []string{".pre-commit-config.yaml", ".pre-commit-config.yml", ".pre-commit-hooks.yaml"}},
		{kind: kindHook, check: checkSettings, unasked: true, paths: []string{
			".githooks/**", "git-hooks/**", "githooks/**", ".hooks/**", ".husky/**", "lefthook.yml", "lefthook.yaml", ".lefthook.yml", ".lefthook.yaml", "lefthook-local.yml", "lefthook.toml", "lefthook.json", ".lefthook/**",
			".overcommit.yml", ".git-hooks/**", ".huskyrc*", ".lintstagedrc*", "lint-staged.config.*", ".simple-git-hooks.*", "simple-git-hooks.*", ".cargo-husky/**", ".captainhook.json", "captainhook.json", "grumphp.yml", "commitlint.config.*",
		}},
		{kind: kindAgent, check: checkProject, unasked: true, paths: []string{".sandbox-agent.yaml", ".sandbox-agent/**"}},
		{kind: kindAgent, check: checkAgent, unasked: true, paths: []string{
			".claude/settings*.json", ".claude/hooks/**", ".mcp.json", "mcp.json", "opencode.json", "opencode.jsonc", ".opencode/**", ".codex/**", ".gemini/settings.json", ".gemini/.env", ".gemini/hooks/**", ".gemini/extensions/**", ".qwen/**",
			".cursor/mcp.json", ".cursor/hooks.json", ".cursor/hooks/**", ".cursor/cli.json", ".cursor/environment.json", ".vscode/mcp.json", ".github/mcp.json", ".github/hooks/**", ".github/copilot/**", "/.github/workflows/copilot-setup-steps.yml",
			".aider.conf.yml", ".aider*", ".amp/**", ".continue/**", ".windsurf/**", ".roo/**", ".roomodes", ".kiro/**", ".goose/**", ".goosehints", ".junie/**", ".claude-plugin/**", ".crush.json", "crush.json", ".zed/**",
		}},
		{kind: kindInstructions, check: checkInstructions, paths: []string{
			"agents.md", "agent.md", "agents.override.md", "claude.md", "claude.local.md", "gemini.md", "qwen.md", "copilot-instructions.md", "*.instructions.md", ".github/instructions/**", ".github/prompts/**", ".github/agents/**", ".github/chatmodes/**",
			".cursorrules", ".cursor/**", ".windsurfrules", ".clinerules", ".clinerules/**", ".claude/**", ".gemini/**", "llms.txt", "skill.md", ".agents/**", "conventions.md",
		}},
		{kind: kindEditor, check: checkEditor, paths: []string{
			".vscode/**", "*.code-workspace", ".idea/**", ".run/**", "*.iml", ".fleet/**", ".vim/**", ".nvim/**", ".vimrc", ".exrc", ".nvimrc", ".nvim.lua", ".lvimrc", ".local.vimrc", ".dir-locals.el", ".dir-locals-2.el", ".projectile", ".sublime-project", "*.sublime-project", ".nova/**", ".theia/**", ".vs/**", ".helix/**", ".kakrc",
		}},
		{kind: kindEnvironment, check: checkSettings, unasked: true, paths: []string{
			".envrc", ".tool-versions", "mise.toml", ".mise.toml", "mise.*.toml", ".mise.*.toml", ".mise/**", "mise/**", ".config/mise/**", ".config/mise.toml", ".rtx.toml", ".autoenv", ".autoenv.zsh", ".env.zsh", ".bashrc", ".bash_profile", ".profile", ".zshrc", ".zshenv", ".inputrc", ".gdbinit", ".lldbinit", ".pythonrc", ".pythonstartup", ".irbrc", ".pryrc", ".rprofile", ".renviron", ".psqlrc", ".sdkmanrc", "devbox.json", ".tmux.conf", ".curlrc", ".wgetrc", ".netrc", ".gitconfig", ".ssh/**",
		}},
		{kind: kindEnvironment, check: checkSettings, paths: []string{"flake.nix", "shell.nix", "default.nix", "devenv.nix", "devenv.yaml", ".node-version", ".nvmrc", ".python-version", ".ruby-version", "rust-toolchain", "rust-toolchain.toml", "procfile", "procfile.*", "vagrantfile", "tiltfile", "skaffold.yaml", ".gitpod.yml", ".gitpod.dockerfile", ".replit", "replit.nix", ".stackblitzrc", ".codesandbox/**", ".env", ".env.*"}},
		{kind: kindDevcontainer, check: checkContainer, paths: []string{".devcontainer/**", ".devcontainer.json"}},
		{kind: kindContainer, check: checkContainer, paths: []string{"dockerfile", "dockerfile.*", "*.dockerfile", "containerfile", "containerfile.*", "docker-compose*.yml", "docker-compose*.yaml", "compose.yml", "compose.yaml", "compose.*.yml", "compose.*.yaml", "docker-bake.hcl", "docker-bake.json", "docker-bake.override.hcl"}},
		{kind: kindSubmodule, check: checkSubmodules, paths: []string{"/.gitmodules"}},
		{kind: kindAttributes, check: checkAttributes, paths: []string{".gitattributes"}},
		{kind: kindScript, check: checkPackageJSON, paths: []string{"package.json", "package.json5", "package.yaml"}},
		{kind: kindScript, check: checkComposer, paths: []string{"composer.json"}},
		{kind: kindScript, check: checkSettings, paths: []string{"deno.json", "deno.jsonc"}},
		{kind: kindScript, check: checkSettings, unasked: true, paths: []string{".pnpmfile.cjs", ".pnpmfile.mjs", "pnpmfile.js", "pnpmfile.cjs", ".yarn/plugins/**", ".yarn/releases/**", "binding.gyp", "sitecustomize.py", "usercustomize.py", "*.pth"}},
		{kind: kindRegistry, check: checkRegistry, paths: []string{
			".npmrc", ".yarnrc", ".yarnrc.yml", "bunfig.toml", "pnpm-workspace.yaml", "pip.conf", "pip.ini", ".pip/**", ".pypirc", "uv.toml", ".condarc", ".cargo/**", "nuget.config", ".nuget/**", ".gemrc", ".bundle/config", "auth.json", ".mvn/**", "settings.xml", "gradle.properties", ".gradle/**", "init.gradle", "init.gradle.kts", ".bazelrc", ".bazeliskrc", ".bazelversion", ".dockerconfigjson", ".docker/config.json", "go.env", ".sbtopts", ".jvmopts", "repositories.yaml", ".terraformrc", "terraform.rc", "lerna.json", ".ansible.cfg", "ansible.cfg",
		}},
		{kind: kindLock, check: checkLock, paths: []string{
			"package-lock.json", "npm-shrinkwrap.json", ".package-lock.json", "yarn.lock", "pnpm-lock.yaml", "bun.lock", "bun.lockb", "deno.lock", "poetry.lock", "uv.lock", "pdm.lock", "pylock*.toml", "pipfile.lock", "cargo.lock", "go.sum", "go.work.sum", "composer.lock", "gemfile.lock", "gems.locked", "*.gemfile.lock",
			"mix.lock", "rebar.lock", "pubspec.lock", "podfile.lock", "package.resolved", "cartfile.resolved", "flake.lock", "conan.lock", "pixi.lock", ".terraform.lock.hcl", "packages.lock.json", "paket.lock", "stack.yaml.lock", "module.bazel.lock", "gradle.lockfile", "verification-metadata.xml", "conda-lock.yml", "cabal.project.freeze", "shard.lock",
		}},
		{kind: kindBuild, check: checkManifest, paths: []string{"pyproject.toml", "setup.cfg", "cargo.toml", "go.mod", "go.work", "gemfile", "gems.rb", "*.gemfile", "pipfile", "requirements*.txt", "requirements*.in", "constraints*.txt", "requirements/**", "*.gemspec", "pubspec.yaml", "mix.exs", "podfile", "package.swift", "environment.yml"}},
		{kind: kindBuild, check: checkBuildFile, paths: []string{
			"build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts", "*.gradle", "*.gradle.kts", "libs.versions.toml", "pom.xml", "gradle-wrapper.properties", "maven-wrapper.properties", "build.sbt", "plugins.sbt", "cmakelists.txt", "*.cmake", "meson.build", "build.bazel", "workspace", "workspace.bazel", "module.bazel", "*.bzl",
			"*.csproj", "*.fsproj", "*.vbproj", "*.vcxproj", "*.props", "*.targets", "*.pbxproj", "*.nuspec", "*.xcscheme", "project.clj", "deps.edn", "build.boot", "build.xml", "ivy.xml",
		}},
		{kind: kindBuild, check: checkBuildScript, paths: []string{"build.rs", "extconf.rb"}},
		{kind: kindBuild, check: checkSetupPy, paths: []string{"setup.py"}},
		{kind: kindBuild, check: checkSettings, paths: []string{"hatch_build.py", "build.zig", "gradlew", "gradlew.bat", "mvnw", "mvnw.cmd", "buildsrc/**", "pavement.py", "conanfile.py", "wscript", "sconstruct", "makefile.pl", "build.pl", "configure.ac"}},
		{kind: kindRecipe, check: checkRecipes, paths: []string{"makefile", "makefile.*", "gnumakefile", "*.mk", "*.mak", "justfile", ".justfile", "*.just", "taskfile.yml", "taskfile.yaml", "taskfile.*.yml", "taskfile.dist.*", "rakefile", "rakefile.rb", "*.rake", "magefile.go", "noxfile.py", "tox.ini", "fabfile.py", "tasks.py", "dodo.py", "gruntfile.*", "gulpfile.*", "fastfile", "earthfile", "dangerfile*", "turbo.json", "nx.json", "cargo-make.toml", "makefile.toml", "xtask/**"}},
		{kind: kindBuild, check: checkSuspicious, paths: []string{
			"vite.config.*", "vitest.config.*", "webpack.config.*", "rollup.config.*", "babel.config.*", ".babelrc*", "jest.config.*", "eslint.config.*", ".eslintrc*", "prettier.config.*", ".prettierrc*", "postcss.config.*", "tailwind.config.*", "next.config.*", "nuxt.config.*", "svelte.config.*", "astro.config.*", "metro.config.*", "playwright.config.*", "cypress.config.*", "karma.conf.*", "conftest.py", "manage.py", "esbuild.*", "tsup.config.*", "*.sh", "*.bash", "*.ps1", "*.bat", "*.cmd",
		}},
		{kind: kindAgent, check: checkProject, paths: []string{"/projects/*.yaml", "/projects/*.yml"}},
	}
}
