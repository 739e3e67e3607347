// Command gen makes the exported face of a drop-in library, libibverbs.so.1 or librdmacm.so.1: a
// version script, and stubs for what the library does not implement.
//
// Programs bind to symbols by name and version, and the versions of the private ones differ from
// release to release. So the list of symbols is that of the library which the drop-in is to stand
// in for: the one installed where it is built. Without one it is the list of Debian 12, which is
// part of this program.
//
// Stubs fail: functions that return a pointer return NULL, others an errno or −1 (in librdmacm
// always −1), all with errno set to EOPNOTSUPP. The symbols of version IBVERBS_1.0 that have a
// successor are for programs of 2006, whose structures were other ones: such a program finds an
// empty list of devices.
package main
