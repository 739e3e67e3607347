package abi

// Vendor says in a completion's vendor_err what the NIC saw. The upper bits leave room for
// evidence: a NAK's AETH syndrome sits in bits 8–15 where there was one.
type Vendor uint32

// Vendor errors.
const (
	VendorNone          Vendor = 0
	VendorNak           Vendor = 1  // the peer answered with the NAK in bits 8–15
	VendorAckTimeout    Vendor = 2  // no answer within timeout × (retry_cnt + 1)
	VendorSequence      Vendor = 3  // PSN sequence NAKs exhausted retry_cnt
	VendorRNR           Vendor = 4  // RNR NAKs exhausted rnr_retry
	VendorNoNIC         Vendor = 5  // ICMP port unreachable: no NIC at the peer's address
	VendorLocalKey      Vendor = 6  // an lkey is unknown, of another PD, or lacks the right
	VendorLocalBounds   Vendor = 7  // an SGE lies outside its region
	VendorLocalFault    Vendor = 8  // the process's memory could not be read or written
	VendorLength        Vendor = 9  // message longer than allowed or than the receive buffers
	VendorOpcode        Vendor = 10 // operation not allowed on this QP type or state
	VendorAddressHandle Vendor = 11 // unknown address handle, or one of another PD
	VendorBadWQE        Vendor = 12 // the work request in shared memory is malformed
	VendorBadResponse   Vendor = 13 // the peer's response does not fit the request
	VendorNoRoute       Vendor = 14 // the source GID is gone, or no route to the destination
	VendorRemoteRights  Vendor = 15 // responder: QP or key lacks the right
	VendorRDAtomic      Vendor = 16 // max_rd_atomic is 0, or the peer exceeded ours
	VendorFlushed       Vendor = 17 // flushed because the QP is in error
	VendorWindow        Vendor = 18 // a memory window could not be bound or invalidated
	VendorSharedQueue   Vendor = 21 // an XRC request for no shared receive queue of the domain
	VendorTagsFull      Vendor = 22 // the matching list had no room for a tagged buffer
	VendorTagGone       Vendor = 23 // the tagged buffer was not in the list, or not any more
	VendorTerminate     Vendor = 24 // iWARP: the peer ended the connection with a Terminate message
	VendorProtocol      Vendor = 25 // iWARP: the peer broke a rule of the protocol
	VendorAlignment     Vendor = 26 // the address of an atomic is not a multiple of 8
	VendorInline        Vendor = 27 // inline data with an operation that sends none
	VendorNoAddress     Vendor = 28 // a datagram without an address handle
	VendorPeerEnded     Vendor = 29 // iWARP: the peer ended the connection, in order or not
	VendorStreamLost    Vendor = 30 // iWARP: TCP lost the connection, or time ran out
)
