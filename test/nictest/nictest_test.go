package nictest

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"testing"
)

func TestMain(m *testing.M) {
	Main(m, map[string]func() error{
		"sleeper": func() error { fmt.Println(os.Getpid()); select {} },
		"starter": func() error {
			p, err := start("sleeper", "")
			if err != nil {
				return err
			}
			p.out.Scan()
			fmt.Println(p.out.Text())
			select {}
		},
	})
}

func TestPart_TestProgramKilled_EndsToo(t *testing.T) {
	starter := StartPart(t, "starter", "")
	pid, err := strconv.Atoi(starter.Line(t))
	if err != nil {
		t.Fatal(err)
	}
	starter.Kill()
	Settles(t, "processes", 0, func() int {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || bytes.Contains(stat, []byte(") Z ")) {
			return 0
		}
		return 1
	})
}

func TestPart_Unknown_Fails(t *testing.T) {
	if err := StartPart(t, "nobody", "").Wait(); err == nil {
		t.Error("an unknown part succeeds")
	}
}
