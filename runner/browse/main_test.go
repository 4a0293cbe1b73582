package browse

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"testing"
)

// TestMain gives this program the roles of the entrypoint that the tests need.
func TestMain(m *testing.M) {
	role := ""
	if len(os.Args) > 1 {
		role = os.Args[1]
	}
	switch role {
	case "browse":
		if err := Visit(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case "dev":
		code, err := Dev(context.Background(), os.Args[2:], os.Stdout)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(code)
	case "serve": // as a development server does
		fmt.Println("listens")
		err := http.ListenAndServe("127.0.0.1:"+os.Args[2], http.NotFoundHandler()) //nolint:gosec // a test
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	default:
		os.Exit(m.Run())
	}
}
