package tidy

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

var (
	changelogRelease = regexp.MustCompile(
		`^## \[(?:Unreleased|\d+\.\d+\.\d+(?:-[0-9a-z.]+)?)\](?: - \d{4}-\d{2}-\d{2})?$`)
	changelogGroups = []string{"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
)

// checkChangelog holds CHANGELOG.md to the form of Keep a Changelog 1.1.0: releases, newest
// first, under them groups of six names, in them entries.
func checkChangelog(r *Repo) []Problem {
	const name = "CHANGELOG.md"
	if !r.has(name) {
		return []Problem{{Path: name, Text: "is missing"}}
	}
	var out []Problem
	report := func(number int, text string) {
		out = append(out, Problem{Path: name, Line: number, Text: text})
	}
	releases, date := 0, "9999-99-99"
	for i, line := range strings.Split(string(r.read(name)), "\n") {
		switch {
		case i == 0 && line != "# Changelog":
			report(1, "begins with “# Changelog”")
		case strings.HasPrefix(line, "## "):
			if releases++; releases == 1 && line != "## [Unreleased]" {
				report(i+1, "the first release is [Unreleased]")
			}
			if !changelogRelease.MatchString(line) {
				report(i+1, "a release reads “## [1.2.3] - 2006-01-02”")
				break
			}
			if _, on, dated := strings.Cut(line, "] - "); dated {
				if on > date {
					report(i+1, "releases stand newest first")
				}
				date = on
			} else if releases > 1 {
				report(i+1, "a release has a date")
			}
		case strings.HasPrefix(line, "### "):
			if !slices.Contains(changelogGroups, line[4:]) {
				report(i+1, "a group is one of "+strings.Join(changelogGroups, ", "))
			}
		}
	}
	if releases == 0 {
		report(0, "has no “## [Unreleased]”")
	}
	return out
}

var (
	decisionName     = regexp.MustCompile(`^docs/adr/(\d{4})-[a-z0-9-]+\.md$`)
	decisionMention  = regexp.MustCompile(`\bADR[ -]?(\d{4})\b|docs/adr/(\d{4}-[a-z0-9-]+\.md)`)
	decisionSections = []string{
		"## Context", "## Decision", "## Rejected", "## Consequences",
		"## How we would know that it was wrong",
	}
)

// decisionIndex lists the decisions.
const decisionIndex = "docs/adr/README.md"

// checkDecisions wants docs/adr numbered without gaps, each in the agreed form, and every mention
// of a decision, in code too, to lead to one.
func checkDecisions(r *Repo) []Problem {
	var out []Problem
	numbers := map[string]bool{}
	for _, name := range r.files {
		if path.Dir(name) != "docs/adr" || path.Base(name) == "README.md" {
			continue
		}
		m := decisionName.FindStringSubmatch(name)
		if m == nil || m[1] != fmt.Sprintf("%04d", len(numbers)+1) {
			text := fmt.Sprintf("the next decision is %04d-title.md", len(numbers)+1)
			out = append(out, Problem{Path: name, Text: text})
			continue
		}
		numbers[m[1]] = true
		if !strings.Contains(string(r.read(decisionIndex)), "]("+path.Base(name)+")") {
			out = append(out, Problem{Path: decisionIndex, Text: "has no row for " + name})
		}
		text := "\n" + string(r.read(name))
		if !strings.HasPrefix(text, "\n# "+m[1]+": ") {
			out = append(out, Problem{Path: name, Line: 1, Text: "begins with “# " + m[1] + ": ”"})
		}
		for _, section := range decisionSections {
			if !strings.Contains(text, "\n"+section+"\n") {
				out = append(out, Problem{Path: name, Text: "has no section “" + section + "”"})
			}
		}
	}
	return append(out, r.checkDecisionMentions(numbers)...)
}

func (r *Repo) checkDecisionMentions(numbers map[string]bool) []Problem {
	var out []Problem
	for _, name := range r.withExt(".go", ".c", ".h", ".md", ".sh") {
		if path.Dir(name) == "internal/tidy" {
			continue // its tests speak of decisions that are not there
		}
		number := 0
		for line := range bytes.Lines(r.read(name)) {
			number++
			for _, m := range decisionMention.FindAllStringSubmatch(string(line), -1) {
				if m[1] != "" && numbers[m[1]] || m[2] != "" && r.has("docs/adr/"+m[2]) {
					continue
				}
				text := m[0] + " does not exist"
				out = append(out, Problem{Path: name, Line: number, Text: text})
			}
		}
	}
	return out
}

var (
	inlineLink  = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	inlineCode  = regexp.MustCompile("`[^`]*`")
	headingText = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// proseLines calls f with each line of a document that is not inside a fenced block.
func (r *Repo) proseLines(name string, f func(number int, line string)) {
	fenced := false
	for i, line := range strings.Split(string(r.read(name)), "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
			continue
		}
		if !fenced {
			f(i+1, line)
		}
	}
}

// checkLinks follows the links of documents to files and headings of the repository. It does not
// ask the network about others.
func checkLinks(r *Repo) []Problem {
	var out []Problem
	for _, name := range r.withExt(".md") {
		r.proseLines(name, func(number int, line string) {
			for _, m := range inlineLink.FindAllStringSubmatch(inlineCode.ReplaceAllString(line, ""), -1) {
				if text := r.judgeLink(name, m[1]); text != "" {
					out = append(out, Problem{Path: name, Line: number, Text: text})
				}
			}
		})
	}
	return out
}

func (r *Repo) judgeLink(from, link string) string {
	if strings.Contains(link, "://") || strings.HasPrefix(link, "mailto:") {
		return ""
	}
	file, anchor, _ := strings.Cut(link, "#")
	target := from
	if file != "" {
		target = path.Join(path.Dir(from), file)
	}
	if !r.has(target) {
		return "link to " + link + ": no such file"
	}
	if anchor == "" || path.Ext(target) != ".md" {
		return ""
	}
	if !slices.Contains(r.anchors(target), anchor) {
		return "link to " + link + ": no such heading"
	}
	return ""
}

// anchors forms the names of a document's headings as code hosts do.
func (r *Repo) anchors(name string) []string {
	var out []string
	r.proseLines(name, func(_ int, line string) {
		title := strings.TrimLeft(line, "#")
		if title == line || !strings.HasPrefix(title, " ") {
			return
		}
		slug := headingText.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), "")
		out = append(out, strings.ReplaceAll(slug, " ", "-"))
	})
	return out
}

var (
	namedPath = regexp.MustCompile(
		"`((?:internal|cmd|verbs|clib|test|docs|scripts|examples)/[A-Za-z0-9_./-]*)`")
	namedTest = regexp.MustCompile("`((?:Test|Fuzz|Benchmark|Example)[A-Z][A-Za-z0-9_]*)`")
	testFunc  = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark|Example)[A-Za-z0-9_]*)\(`)
)

// checkDocumentNames wants the paths and the tests that documents name in code type to exist.
func checkDocumentNames(r *Repo) []Problem {
	tests := map[string]bool{}
	for _, f := range r.gos {
		for _, m := range testFunc.FindAllSubmatch(f.source, -1) {
			tests[string(m[1])] = true
		}
	}
	var out []Problem
	for _, name := range r.withExt(".md") {
		if name == "CHANGELOG.md" {
			continue // it also speaks of what was
		}
		r.proseLines(name, func(number int, line string) {
			for _, m := range namedPath.FindAllStringSubmatch(line, -1) {
				if !r.has(strings.TrimSuffix(m[1], "/")) {
					text := "names " + m[1] + ", which does not exist"
					out = append(out, Problem{Path: name, Line: number, Text: text})
				}
			}
			for _, m := range namedTest.FindAllStringSubmatch(line, -1) {
				if !tests[m[1]] {
					text := "names " + m[1] + ", which does not exist"
					out = append(out, Problem{Path: name, Line: number, Text: text})
				}
			}
		})
	}
	return out
}
