package workorder

import "time"

// Maintenance of the layer cache. Only a container can access the volume, so the host starts a box without an order:
// `entrypoint cache VERB` reads one CacheRequest as the first line of its standard input (at most MaxCacheRequest
// bytes; for CacheLoad the archive follows) and answers with one CacheLine per line.

// The verbs of `entrypoint cache`.
const (
	CacheList  = "ls"
	CachePrune = "prune"
	CacheLoad  = "load"
	CachePull  = "pull"
	// CacheExport writes snapshots as a tar stream to CachePipe, and CacheImport reads one after the request.
	CacheExport = "export"
	CacheImport = "import"
)

// CachePipe is a named pipe in a cache box. The host reads it after EventCachePipe.
const CachePipe = "/run/sandbox-agent-cache"

// EventCachePipe is the event before a cache box opens CachePipe.
const EventCachePipe EventType = "cache.pipe"

// MaxCacheRequest is the limit of a request, in bytes: it lists images.
const MaxCacheRequest = 1 << 20

// CacheBoxPrefix begins the value of LabelTask of a cache box. It is not a task id, and no task has a record under it.
const CacheBoxPrefix = "cache-"

// EventCacheReport is the last line of the answer: Status ok or error, Text (the error).
const EventCacheReport EventType = "cache.report"

// CacheRequest is a request to a cache box. Each verb reads its own fields.
type CacheRequest struct {
	Version int    `json:"version"`
	ID      string `json:"id"` // the box's name among those that use the volume
	// Images are the images to pull. HostImages are those that the host can send, as in Order.
	Images     []string          `json:"images,omitempty"`
	HostImages map[string]string `json:"host_images,omitempty"`
	// OlderThanSeconds is how long an image must be unused to be removed (prune); 0 means every unused image.
	OlderThanSeconds float64 `json:"older_than_seconds,omitempty"`
	DryRun           bool    `json:"dry_run,omitempty"`
	// Snapshots are the ids of the setup caches to export.
	Snapshots []string `json:"snapshots,omitempty"`
	// Repo, if set, replaces the repository of imported setup caches.
	Repo string `json:"repo,omitempty"`
}

// CacheLine is one line of the answer: progress (EventService by image, EventImageRequest, EventWarning), or as the
// last line EventCacheReport with the report.
type CacheLine struct {
	Event
	Report *CacheReport `json:"report,omitempty"`
}

// CacheReport is the result of a request. All sizes are in bytes.
type CacheReport struct {
	// Stores are the parts of the cache, one for each pair of storage driver and ids: their layers are not interchangeable.
	Stores    []CacheStore    `json:"stores"`
	Snapshots []CacheSnapshot `json:"snapshots"` // the setup caches of projects (ls)
	// RemovedSnapshots are the setup caches that prune removed, or would remove.
	RemovedSnapshots []CacheSnapshot `json:"removed_snapshots"`
	DiskBytes        int64           `json:"disk_bytes"`  // the disk use of the whole volume (ls)
	FreedBytes       int64           `json:"freed_bytes"` // what prune freed, or would free
	// Brought are the images that are now in the cache (load, pull). NewLayers is the number of added layers.
	Brought   []string `json:"brought"`
	NewLayers int      `json:"new_layers"`
	// Moved are the setup caches that were exported, or are there after an import; Refused those that were not imported.
	Moved   []CacheSnapshot `json:"moved,omitempty"`
	Refused []CacheSnapshot `json:"refused,omitempty"`
}

// CacheStore is one part of the cache.
type CacheStore struct {
	Name   string       `json:"name"` // driver-uid.gid
	Images []CacheImage `json:"images"`
	Layers int          `json:"layers"`
	// SeedBytes is the disk use of the shared layers, BoxBytes that of the private data roots of running and ended
	// boxes, TrashBytes that of data being deleted (ls).
	SeedBytes  int64    `json:"seed_bytes"`
	BoxBytes   int64    `json:"box_bytes"`
	TrashBytes int64    `json:"trash_bytes"`
	Boxes      []string `json:"boxes"` // the live boxes that use it
	// Removed are the images that prune removed, or would remove; RemovedLayers the unused layers, Leftovers the
	// leftovers of ended boxes.
	Removed       []CacheImage `json:"removed"`
	RemovedLayers int          `json:"removed_layers"`
	Leftovers     int          `json:"leftovers"`
}

// CacheImage is an image in the cache.
type CacheImage struct {
	ID    string   `json:"id"`    // sha256:...
	Names []string `json:"names"` // references; empty: a newer image took its name
	// OwnBytes is the size of layers that no other image has, SharedBytes that of the others.
	OwnBytes    int64     `json:"own_bytes"`
	SharedBytes int64     `json:"shared_bytes"`
	PublishedAt time.Time `json:"published_at"`
	UsedAt      time.Time `json:"used_at"`           // when a box that declares the image last used or published it
	Boxes       []string  `json:"boxes"`             // the live boxes that use its layers
	Problem     string    `json:"problem,omitempty"` // why no box can use it; "" if it is intact
}

// CacheSnapshot is the setup cache of a project.
type CacheSnapshot struct {
	ID      string    `json:"id"`
	Project string    `json:"project"` // the repository as the user named it
	Bytes   int64     `json:"bytes"`   // its own disk use, without the setup caches below it
	MadeAt  time.Time `json:"made_at"`
	UsedAt  time.Time `json:"used_at"` // when a box last used or created it
	Below   int       `json:"below"`   // the number of setup caches below it
	Used    bool      `json:"used"`    // a running box uses it
	// Image is the id of the image that it was made with; "" for one of an older program, which cannot be exported.
	Image   string `json:"image,omitempty"`
	Problem string `json:"problem,omitempty"` // why it was refused
}
