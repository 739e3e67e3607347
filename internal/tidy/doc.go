// Package tidy reads the whole repository and reports what breaks its written rules: the layers,
// the purity of the core, the shape limits, package comments, unfinished work, unused test data,
// large blobs, the form of the changelog and the decisions, and links that lead nowhere.
//
// Every rule is a Check: a function from a Repo to problems. The package's test runs all of them
// over this repository, and one small broken repository after another over each, so a check that
// could not fail would itself fail:
//
//	go test ./internal/tidy
//
// The checks parse sources themselves with go/parser. A test that ran "go list" instead would be
// cached by "go test" against the wrong inputs; files opened here are inputs of the cache.
//
// A data table is exempt from the shape limits when its declaration's comment has a line of its
// own that reads //tidy:table. Generated files (their first comment says so, in the form that
// "go generate" prescribes) are exempt too. There are no other exemptions.
package tidy
