package sandboxcmd

import (
	"testing"

	"github.com/sandbox-agent/sandbox-agent/internal/exiterr"
	"github.com/sandbox-agent/sandbox-agent/workorder"
)

func TestSidesOfACopy(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		from, to string
		src, dst side
		code     int
	}{
		{"a", "dev:/b", side{"", "a"}, side{"dev", "/b"}, workorder.ExitOK},
		{"dev:b:c", "./a:b", side{"dev", "b:c"}, side{"", "./a:b"}, workorder.ExitOK},
		{"dev:", "/a:b", side{"dev", "."}, side{"", "/a:b"}, workorder.ExitOK},
		{"-", "dev:.", side{"", "-"}, side{"dev", "."}, workorder.ExitOK},
		{"a:b", "c:d", side{"a", "b"}, side{"c", "d"}, workorder.ExitUsage},
		{"a", "b", side{"", "a"}, side{"", "b"}, workorder.ExitUsage},
		{":a", "b", side{"", "a"}, side{"", "b"}, workorder.ExitUsage},
		{"", "dev:b", side{}, side{"dev", "b"}, workorder.ExitUsage},
		{"Dev:a", "b", side{"Dev", "a"}, side{"", "b"}, workorder.ExitUsage},
		{"T-A1B2C3D4:a", "b", side{"T-A1B2C3D4", "a"}, side{"", "b"}, workorder.ExitUsage},
	} {
		src, dst, err := sidesOf(row.from, row.to)
		if src != row.src || dst != row.dst || exiterr.Code(err) != row.code {
			t.Errorf("%q to %q: %+v, %+v, %v", row.from, row.to, src, dst, err)
		}
	}
}
