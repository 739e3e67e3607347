// Package explain says in plain words what the names and numbers of RDMA mean: completion
// statuses, events, NAK codes, reject reasons, errnos, states. It is tables, one row a thing, and a
// search over all the names under which people meet it: the constant, its number, the words that
// libraries and other programs print.
//
//	for _, e := range explain.Find("retry exceeded") {
//		fmt.Println(e.Name, e.Means, e.Causes)
//	}
//	explain.Closest("IBV_WC_RETRY_ERR") // what is spelled like it
//
// Chain does the same for one failure: it turns the evidence that the NIC left (abi.Cause) into
// sentences, from what the program sees to what stands behind it.
//
// The texts are ours. Where a standard or a manual page defines a thing, the row names the place.
package explain
