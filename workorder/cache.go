package workorder

import "time"

// The upkeep of the layer cache. The volume can only be touched from a container,
// so the host starts a box without a task: `entrypoint cache VERB` reads one CacheRequest
// as the first line of its standard input (at most MaxCacheRequest bytes; for
// CacheLoad the archive follows) and answers with one CacheLine per line. It has no work order.

// The verbs of `entrypoint cache`.
const (
	CacheList  = "ls"
	CachePrune = "prune"
	CacheLoad  = "load"
	CachePull  = "pull"
)

// MaxCacheRequest bounds a request, in bytes: it names images.
const MaxCacheRequest = 1 << 20

// CacheBoxPrefix begins the value of LabelTask of a box that looks after the
// cache. It is no task id, and no task has a record under it.
const CacheBoxPrefix = "cache-"

// EventCacheReport is the last line of the answer: Status ok or error, Text (the error).
const EventCacheReport EventType = "cache.report"

// CacheRequest says what to do. Each verb reads its own fields.
type CacheRequest struct {
	Version int `json:"version"`
	// ID is the box's name among those that use the volume.
	ID string `json:"id"`
	// Images to bring in (pull), and those of them that the host can hand over, as in Order.
	Images     []string          `json:"images,omitempty"`
	HostImages map[string]string `json:"host_images,omitempty"`
	// OlderThanSeconds is how long an image has to be unused to be removed
	// (prune); 0 means every image that no box uses now.
	OlderThanSeconds float64 `json:"older_than_seconds,omitempty"`
	DryRun           bool    `json:"dry_run,omitempty"`
}

// CacheLine is one line of the answer: progress (EventService by image,
// EventImageRequest, EventWarning), and last EventCacheReport with the report.
type CacheLine struct {
	Event
	Report *CacheReport `json:"report,omitempty"`
}

// CacheReport is what was found and done. All sizes are in bytes.
type CacheReport struct {
	// Stores are the parts of the cache, one for each storage driver and pair of
	// ids: layers of one do not fit the other.
	Stores []CacheStore `json:"stores"`
	// Snapshots are what setup left in projects' folders (ls).
	Snapshots []CacheSnapshot `json:"snapshots"`
	// RemovedSnapshots are those that prune removed, or would.
	RemovedSnapshots []CacheSnapshot `json:"removed_snapshots"`
	// DiskBytes is what the whole volume takes (ls).
	DiskBytes int64 `json:"disk_bytes"`
	// FreedBytes is what prune freed, or would free.
	FreedBytes int64 `json:"freed_bytes"`
	// Brought are the images that are now there (load, pull), and NewLayers how
	// many layers the cache did not have.
	Brought   []string `json:"brought"`
	NewLayers int      `json:"new_layers"`
}

// CacheStore is one part of the cache.
type CacheStore struct {
	Name   string       `json:"name"` // driver-uid.gid
	Images []CacheImage `json:"images"`
	Layers int          `json:"layers"`
	// SeedBytes is what the shared layers take on the disk, BoxBytes the private data roots of
	// boxes that live or died, TrashBytes what is on its way to deletion (ls).
	SeedBytes  int64 `json:"seed_bytes"`
	BoxBytes   int64 `json:"box_bytes"`
	TrashBytes int64 `json:"trash_bytes"`
	// Boxes are the live boxes that use it.
	Boxes []string `json:"boxes"`
	// Removed are the images that prune removed (or would), RemovedLayers the
	// layers that no image needed, Leftovers what dead boxes left.
	Removed       []CacheImage `json:"removed"`
	RemovedLayers int          `json:"removed_layers"`
	Leftovers     int          `json:"leftovers"`
}

// CacheImage is an image in the cache.
type CacheImage struct {
	ID    string   `json:"id"`    // sha256:...
	Names []string `json:"names"` // references; none: a newer image took its name
	// OwnBytes is the content of layers that no other image has, SharedBytes of the others.
	OwnBytes    int64     `json:"own_bytes"`
	SharedBytes int64     `json:"shared_bytes"`
	PublishedAt time.Time `json:"published_at"`
	// UsedAt is when a box that declares the image last took it or published it.
	UsedAt time.Time `json:"used_at"`
	// Boxes are the live boxes that run on its layers.
	Boxes []string `json:"boxes"`
	// Problem says why no box can use it; empty means it is sound.
	Problem string `json:"problem,omitempty"`
}

// CacheSnapshot is what setup of a project left.
type CacheSnapshot struct {
	ID      string `json:"id"`
	Project string `json:"project"` // the repository as the user named it
	// Bytes is what it takes on the disk, without those that it lies on.
	Bytes  int64     `json:"bytes"`
	MadeAt time.Time `json:"made_at"`
	// UsedAt is when a box last took it or made it.
	UsedAt time.Time `json:"used_at"`
	// Below is how many snapshots it lies on.
	Below int `json:"below"`
	// Used says that a live box has it below its folders.
	Used bool `json:"used"`
}
