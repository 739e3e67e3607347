// Package transcripttest runs the scripts of a package's tests, which hold commands and what they
// bring about. In a file testdata/*.txt a line that begins with "> " is a command and "#" begins a
// comment; the rest is output, which a run has to repeat. With the flag -rewrite the tests write
// what happens into the files instead, for somebody to read the difference.
package transcripttest
