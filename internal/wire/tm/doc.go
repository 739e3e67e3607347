// Package tm reads and writes the headers of tag matching, which lie in the payload of ordinary
// SENDs: struct ibv_tmh and struct ibv_rvh of rdma-core's tm_types.h, whose tag_matching.md says
// what they are for.
package tm
