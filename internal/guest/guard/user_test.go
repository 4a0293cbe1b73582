package guard

import (
	"log/slog"
	"testing"
)

// The caller's own id in a container that binds files is that of the container's root; in others it stays.
func TestOwnUserOfBinds(t *testing.T) {
	t.Parallel()
	const uid = 4242
	files := map[string]any{"Mounts": []any{map[string]any{"Type": "bind", "Source": "/x", "Target": "/y"}}}
	for name, c := range map[string]struct {
		user string
		host any
		want string
	}{
		"uid": {"4242", files, "0:0"}, "uid and gid": {"4242:4242", files, "0:0"}, "another": {"4243", files, "4243"}, "by name": {"node", files, "node"}, "none": {"", files, ""},
		"root": {"0:0", files, "0:0"}, "no binds": {"4242", map[string]any{}, "4242"}, "a volume": {"4242", map[string]any{"Mounts": []any{map[string]any{"Type": "volume", "Source": "v", "Target": "/y"}}}, "4242"}, "no HostConfig": {"4242", nil, "4242"},
	} {
		m := map[string]any{"User": c.user, "HostConfig": c.host}
		ownUser(m, peer{uid: uid})
		if m["User"] != c.want {
			t.Errorf("%s: %v, want %s", name, m["User"], c.want)
		}
	}
	j := &judge{g: New(Config{Log: slog.New(slog.DiscardHandler)}), peer: peer{uid: uid}}
	if v, err := createOf(j, "", map[string]any{"Image": "x", "user": "4242"}); err != nil || v.(map[string]any)["User"] != "4242" {
		t.Errorf("%v, %v", v, err)
	}
}
