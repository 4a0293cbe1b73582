package surface

// Limits of one report. A diff of 50,000 files is read in seconds with them,
// and what lies in memory at a time is one batch and one pair of files.
const (
	// maxEntries is the number of changed paths that are kept; settings are kept beyond it.
	maxEntries = 100_000
	// maxFile is the size up to which a file is read whole. Lock files of large projects have 2 MB.
	maxFile = 4 << 20
	// maxTotal bounds what is read of all files together, base and head.
	maxTotal = 96 << 20
	// batchBytes and batchObjects bound one call of cat-file: less than what internal/proc keeps
	// of an output (16 MB), a pair of largest files above the batch included.
	batchBytes   = 6 << 20
	batchObjects = 2000
	// sizeObjects bounds one question for sizes: 60 bytes of answer each.
	sizeObjects = 50_000
	// sniffBytes is what is read of a file above maxFile to tell what it is; maxSniffs how many of them.
	sniffBytes = 4096
	maxSniffs  = 32
	// maxCommand is what of a value is looked at for odd commands; a command that is longer is a long line.
	maxCommand = 8 << 10
	// maxPatterns is how much of all settings together is compared with patterns, and maxFilePatterns of one file:
	// at worst a microsecond for each byte.
	maxPatterns     = 4 << 20
	maxFilePatterns = 512 << 10
	// maxLinks bounds how many links of head are followed to what they stand for.
	maxLinks = 200
	// maxFindings bounds the report. Of more than perKind files with findings of one kind, or perGraveKind with grave ones,
	// the last one that is told says how many more there are, and names namedRest of them.
	maxFindings  = 200
	perKind      = 4
	perGraveKind = 12
	namedRest    = 3
	// maxText is the length of a finding's text in characters, maxQuote that of what it quotes.
	maxText  = 240
	maxQuote = 120
	// maxPath is the length of a path that is shown whole.
	maxPath = 300
	// maxLeaves and maxDepth bound a JSON or YAML document.
	maxLeaves = 400_000
	maxDepth  = 200
	// maxNames bounds the names above all values of a document together: one long name above many values is quadratic.
	maxNames = 32 << 20
	// maxYAML bounds what is given to the YAML parser, which needs fifty times the memory of its input.
	maxYAML = 512 << 10
)
