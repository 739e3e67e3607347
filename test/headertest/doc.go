// Package headertest holds headers of a wire to their bytes as a standard draws them: each
// direction, the length, what is printed, and that no cut one is taken.
package headertest
