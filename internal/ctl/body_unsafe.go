package ctl

import "unsafe"

// Bytes returns the memory of a message structure: structures of package abi have no pointers and
// no padding, and both ends share the host's byte order. The bytes are those of v, not a copy.
func Bytes[T any](v *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v))
}

// ListBytes is Bytes for an array.
func ListBytes[T any](list []T) []byte {
	var one T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(list))),
		len(list)*int(unsafe.Sizeof(one)))
}

// Decode copies a message body of exactly the structure's size into v, and reports whether it had
// that size.
func Decode[T any](body []byte, v *T) bool {
	if len(body) != int(unsafe.Sizeof(*v)) {
		return false
	}
	copy(Bytes(v), body)
	return true
}

// DecodeList copies a body that is an array. It reports false for a torn last element.
func DecodeList[T any](body []byte) ([]T, bool) {
	var one T
	size := int(unsafe.Sizeof(one))
	if len(body)%size != 0 {
		return nil, false
	}
	list := make([]T, len(body)/size)
	copy(ListBytes(list), body)
	return list, true
}

// DecodeHead copies the structure at the front of body into v and returns the rest.
func DecodeHead[T any](body []byte, v *T) (rest []byte, ok bool) {
	size := int(unsafe.Sizeof(*v))
	if len(body) < size {
		return nil, false
	}
	copy(Bytes(v), body[:size])
	return body[size:], true
}
