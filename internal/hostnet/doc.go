// Package hostnet tells what the network namespace of this process looks like to an adapter: its
// interfaces, the addresses that become GIDs, the way a packet would take, and when any of it
// changes.
//
// A Host keeps its netlink socket, so it stays in the namespace in which it was opened, whatever
// the threads of the program do later:
//
//	host, err := hostnet.Open()
//	snapshot, err := host.Snapshot()      // interfaces and addresses in GID order
//	route, err := host.Route(peer, 0)     // source address, interface, is it us?
//	watch, err := host.Watch()            // watch.C delivers a Snapshot after each change
package hostnet
