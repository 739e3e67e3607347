// Package ring is the single-producer, single-consumer queue that an application and the NIC
// share: a power of two fixed-size slots and two free-running indices, each written by one side.
//
//	producer: if Free() > 0 { fill Slot(); Push() } … Publish()
//	consumer: n := Pending(); for i < n { copy Slot(i) } … Release(n)
//
// The other side is hostile. A side reads the other's index once per call and bounds it by its
// own geometry; slots are selected by its own mask. What a slot holds is for the caller to copy
// once and then check.
package ring
