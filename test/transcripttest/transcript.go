package transcripttest

import (
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write what happens into the transcripts")

// Player runs the commands of one script. What happens it writes to the builder that it was made
// with.
type Player func(command Words)

// Run plays every script in testdata, each with a player of its own.
func Run(t *testing.T, newPlayer func(t *testing.T, out *strings.Builder) Player) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			play(string(text), &out, newPlayer(t, &out))
			if *rewrite {
				if err := os.WriteFile(name, []byte(out.String()), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if out.String() != string(text) {
				t.Errorf("%s happens otherwise; what happens now:\n%s", name, out.String())
			}
		})
	}
}

// play repeats commands and comments in the output, each in front of what it brings about.
func play(script string, out *strings.Builder, do Player) {
	for line := range strings.Lines(script) {
		line = strings.TrimRight(line, "\n")
		command, isCommand := strings.CutPrefix(line, "> ")
		if isCommand || line == "" || strings.HasPrefix(line, "#") {
			out.WriteString(line + "\n")
		}
		if isCommand {
			do(strings.Fields(command))
		}
	}
}

// Words are a command and its arguments: the first ones bare, the others key=value.
type Words []string

// Text returns the value of a key; empty without one.
func (w Words) Text(key string) string {
	for _, word := range w {
		if v, ok := strings.CutPrefix(word, key+"="); ok {
			return v
		}
	}
	return ""
}

// Number returns the value of a key, or what is given without one.
func (w Words) Number(key string, otherwise int) int {
	if n, err := strconv.Atoi(w.Text(key)); err == nil {
		return n
	}
	return otherwise
}
