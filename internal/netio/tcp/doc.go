// Package tcp is the kernel's TCP for one lane: listeners, connections and their bytes, over
// ordinary sockets, no privilege needed. It implements nic.StreamPort.
//
// Nothing here blocks or starts a goroutine, and each call does a bounded piece of work. The owner
// has an epoll set, into which the port puts its sockets; it drives the port on one thread:
//
//	events := wait until port.Deadline(), or not at all while port.HasWork()
//	port.HandleEvent(event)   // for those that port.Owns; the NIC is not called from here
//	port.Receive(now)         // accept, finish connecting, receive: calls the NIC's Handle… methods
//	port.Transmit(now)        // asks the NIC what to send, and sends it
//
// Sockets are watched edge-triggered and stay in the set as they are: a socket that has more than
// its share is put at the end of a queue, and HasWork says that one waits.
//
//	event ──▶ ready queue ──▶ one receive of up to 256 KiB ──▶ NIC
//	              ▲                    │ the buffer was filled: there is more
//	              └────────────────────┘
//
// Sockets that had data within the last 200 µs, up to four of them, are asked directly in each
// turn, since an answer to what was just received is often on its way.
//
// What is received goes to memory of the application where the NIC offers some
// (nic.NIC.ReceiveSpace), which it does for long FPDUs, else to a buffer of the port. What is sent
// goes from where the NIC has it. Why there is no MSG_ZEROCOPY, and no injection of faults, is in
// docs/adr/0022-kernel-tcp.md.
package tcp
