package surface

// Kinds of findings.
const (
	kindWorkflow     = "workflow"
	kindHook         = "hook"
	kindScript       = "package-script"
	kindBuild        = "build-script"
	kindLock         = "lock-source"
	kindRegistry     = "registry"
	kindRecipe       = "recipe"
	kindContainer    = "container"
	kindDevcontainer = "devcontainer"
	kindAgent        = "agent-settings"
	kindInstructions = "agent-instructions"
	kindEditor       = "editor"
	kindEnvironment  = "environment"
	kindSubmodule    = "submodule"
	kindAttributes   = "attributes"
	kindSymlink      = "symlink"
	kindBinary       = "binary"
	kindMode         = "mode"
	kindGitPath      = "git-path"
	kindBidi         = "bidi"
	kindInvisible    = "invisible"
	kindHomoglyph    = "homoglyph"
	kindControl      = "control"
	kindLongLine     = "long-line"
	kindBlob         = "blob"
	kindKey          = "key"
	kindConflict     = "conflict"
	// KindSecret is of findings that are added from outside: only who has the secrets knows their values.
	KindSecret   = "secret"
	kindVendored = "vendored"
	kindUnread   = "unread"
)

// Rule is one kind of finding.
type Rule struct {
	Kind string
	// Why says why a reviewer should know.
	Why string
	// Grave: each finding of this kind is. Of the other kinds those are that say why:
	// a new command that runs unasked, hidden text, a changed source.
	Grave bool
}

// Rules lists the kinds, in the order in which a report has them.
func Rules() []Rule {
	return []Rule{
		{kindBidi, "Characters that turn the direction of text make code look like other code.", true},
		{kindInvisible, "Characters that nobody sees can hold instructions for an agent, or make two equal names differ.", false},
		{kindHomoglyph, "A word with letters of two scripts looks like another word.", true},
		{kindControl, "Control characters rewrite what a terminal shows.", false},
		{kindGitPath, "A path that some file systems take for git's own folder, or for another file.", false},
		{kindSymlink, "A link out of the repository, into .git, or in the place of settings is read and written through.", true},
		{kindSubmodule, "A submodule is code from elsewhere, and its URL decides from where.", false},
		{kindLock, "A dependency comes from a source that base did not use, or is not what base had under this version.", false},
		{kindRegistry, "Settings of package managers decide from where packages come and what runs beside them.", false},
		{kindHook, "Hooks run at commit, checkout or merge, without being asked for.", false},
		{kindAgent, "Settings of coding agents start programs and grant permissions; project files of this tool also choose where tokens go.", false},
		{kindEditor, "Settings of editors start programs when a folder is opened or a file is saved.", false},
		{kindEnvironment, "Files that a shell or a version manager reads when it enters the folder.", false},
		{kindDevcontainer, "A devcontainer runs commands and mounts folders when the folder is opened.", false},
		{kindScript, "Package scripts run at installation or with the package manager's commands.", false},
		{kindBuild, "Build scripts and plugins run when the project is built or installed.", false},
		{kindWorkflow, "CI runs it, often with secrets and with rights on the repository.", false},
		{kindContainer, "Images and services: what is built, from what, and what of the host they may touch.", false},
		{kindRecipe, "Recipes run with make, just, task and the like.", false},
		{kindAttributes, "Attributes name filters and diff drivers, and hide files from a diff.", false},
		{kindInstructions, "Coding agents take these texts as instructions.", false},
		{kindBinary, "A program that cannot be read in a review.", true},
		{kindKey, "It looks like a private key or a token.", true},
		{KindSecret, "The value of a secret, or of a key's placeholder, is in the commits.", true},
		{kindConflict, "Markers of a conflict: nobody decided between the two sides.", true},
		{kindBlob, "Encoded data in source can be a program.", false},
		{kindLongLine, "Code beyond the edge of the screen is not seen.", false},
		{kindMode, "The file can be run as a program now.", false},
		{kindVendored, "Findings in a folder of copied code, in one line.", false},
		{kindUnread, "It was too large to be read; nothing is known about it.", false},
	}
}

// rank is the place of each kind in a report.
func rank() map[string]int {
	m := map[string]int{}
	for i, r := range Rules() {
		m[r.Kind] = i
	}
	return m
}
