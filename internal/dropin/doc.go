// Package dropin carries the drop-in C libraries inside the binary and lays them out on disk for
// programs to load.
//
// The build copies the libraries into files/, from where they are embedded; a binary that was
// built without them works but for Install, which then says how to build them. A directory on
// disk is named after the content that it holds, so binaries of several versions share a cache
// and a running program keeps the libraries that it started with:
//
//	dir, err := dropin.Install(dropin.Roots(runtimeDir))   // ~/.cache/softrnic/lib-1f2e…
//	env = append(env, "LD_LIBRARY_PATH="+dir)
package dropin
